"""Assembly of a process from concrete parts. `main.py` imports it only when a command needs it."""
