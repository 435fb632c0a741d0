"""Runs: submission, claims, events and the end."""
