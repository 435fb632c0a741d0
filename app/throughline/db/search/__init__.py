"""Full-text search over stored messages: the service's own inverted index, and queries that rank with it."""
