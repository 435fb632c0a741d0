"""Preparation of a prompt: the agent with its model, the loaded conversation, the plan of `context/`, and reports."""
