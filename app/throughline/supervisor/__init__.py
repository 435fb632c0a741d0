"""Several processes that serve one port: a supervisor that starts, watches and replaces its child processes.

It knows nothing of the service: `assembly/serve_processes.py` says what a child runs, and how many there are.
"""
