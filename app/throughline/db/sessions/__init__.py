"""Sessions and their messages: the log, loading for turns, pins, imports, redaction and erasure."""
