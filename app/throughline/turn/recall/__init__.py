"""Search of memories and of the message history, by words and, with an embedding model, by meaning."""
