"""Storage of users' memories and their embedding vectors."""
