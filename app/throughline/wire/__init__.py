"""JSON shapes of the HTTP interface. Each is defined once, for rendering values and for parsing JSON."""
