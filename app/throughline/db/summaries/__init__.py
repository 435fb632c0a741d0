"""Summaries: stretches, versions, the cursor, and what was learned of each model's counting."""
