"""Users' memories as the doors see them: kept, and found by their words and, with a model for it, by their meaning."""
