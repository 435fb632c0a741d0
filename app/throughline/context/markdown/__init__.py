"""Search of Markdown text for code, in fenced blocks and in spans; used for Slack's format and for citations."""
