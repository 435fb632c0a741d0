"""Users' memories for the interfaces: storage, and search by words and, with an embedding model, by meaning."""
