"""A model's Markdown as Slack shows it, and where it may be cut."""
