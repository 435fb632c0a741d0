"""The service's own routes under `/v1`, with what they take and give."""
