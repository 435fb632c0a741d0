"""Responses: requests, objects, streams, WebSockets and compaction."""
