"""Storage for Slack: tables, inbox, outbox, people and conversations."""
