"""The REST interface, with server-sent events."""
