"""Puts the concrete parts of a process together; nobody but `main.py` asks for it, by name and when it is needed."""
