"""Chat completions: the request, the session that it continues, and its answer."""
