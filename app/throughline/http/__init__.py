"""HTTP support that all routes share: the server, limits, request bodies, API keys, errors and event streams."""
