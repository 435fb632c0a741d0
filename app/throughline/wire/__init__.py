"""What goes over HTTP: each JSON shape once, with its fields, what makes it from our values, and how it is read."""
