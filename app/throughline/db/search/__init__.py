"""Search over the stored history: an inverted index of our own beside the messages, and queries that rank with it."""
