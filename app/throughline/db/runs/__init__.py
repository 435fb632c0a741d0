"""Runs: from submission to the end, and what their readers are told."""
