"""Slack's inbox and outbox, people and conversations."""
