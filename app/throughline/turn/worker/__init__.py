"""The background worker of a process, which claims and executes turns, side jobs and scheduled maintenance."""
