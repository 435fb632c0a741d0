"""Storage of sessions and their messages: appending, loading for turns, pins, imports, redaction and erasure."""
