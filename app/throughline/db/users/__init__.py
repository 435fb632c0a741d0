"""Users and their API keys."""
