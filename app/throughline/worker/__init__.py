"""The background worker: claims and executes turns, side jobs and scheduled maintenance."""
