"""LangGraph graphs of other people as agents: imported, run under a turn, and their state kept as JSON."""
