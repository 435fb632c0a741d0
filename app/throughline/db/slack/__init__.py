"""Storage for Slack: inbox, outbox, people and conversations."""
