"""Running work that may take long, hang or fail: worker threads, plugins, leases and circuit breakers."""
