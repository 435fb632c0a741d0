"""Programs for contributors, which are not installed."""
