"""Code in Markdown: fenced blocks and spans. Found for Slack's Markdown and for citations."""
