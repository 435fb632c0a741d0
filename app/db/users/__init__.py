"""Users and their keys."""
