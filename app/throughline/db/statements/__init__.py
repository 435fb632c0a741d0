"""What statements are made of: pieces of SQL, columns read into values, locks, ids, pages."""
