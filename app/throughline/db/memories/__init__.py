"""Users' memories and their vectors."""
