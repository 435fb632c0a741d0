"""A model's Markdown as Slack shows it, and the positions at which it may be cut."""
