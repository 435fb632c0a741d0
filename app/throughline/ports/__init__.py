"""Protocols for the services that turns, prompts and summaries need. Adapters implement them.

`assembly/` connects the implementations with their users.
"""
