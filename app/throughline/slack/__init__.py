"""The Slack interface: it receives messages from Slack, delivers answers to it, and handles the command `/agent`."""
