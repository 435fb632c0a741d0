"""Preparation of a prompt: the agent with its model, the loaded conversation, the engine's plan, and reports."""
