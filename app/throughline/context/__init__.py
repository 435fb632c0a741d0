"""The engine: plain functions that decide what a prompt shows. Values in, values out; no I/O, no framework."""
