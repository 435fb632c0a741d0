"""One chat turn: the graph, its five nodes, and what surrounds it from submission to the last event."""
