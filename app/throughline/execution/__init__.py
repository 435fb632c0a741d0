"""Execution of work that may take long, hang or fail: compute threads, plugin calls, leases and circuit breakers."""
