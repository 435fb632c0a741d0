"""What a prompt shows of a conversation: the view, its messages and the texts that stand in for others."""
