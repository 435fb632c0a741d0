"""The service's own routes under `/v1`, with the formats of their requests."""
