"""The context engine: plain functions that decide what a prompt shows, without I/O and without a framework."""
