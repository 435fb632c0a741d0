"""Sessions and their messages: the log, what a turn loads of it, pins, imports, redaction, erasure."""
