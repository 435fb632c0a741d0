"""The chat at a terminal: its commands, its answers, and what a person is asked."""
