"""Summaries: segments, versions, the cursor, and what was learned of each model's counting."""
