"""One chat turn: the LangGraph graph with its five nodes, and the code from submission to the last event."""
