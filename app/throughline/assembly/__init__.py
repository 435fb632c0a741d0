"""Assembly of the programs: settings, database, models and interfaces are put together for one process.

`main.py` imports it only when a command needs it.
"""
