"""Delivery of answers to Slack: messages, streams and their Markdown, and the questions of waiting runs."""
