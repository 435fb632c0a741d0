"""The REST and SSE door."""
