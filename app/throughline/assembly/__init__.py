"""Puts the concrete parts of a process together; `main.py` asks for it by name, when it is needed."""
