"""Retention: deletion of expired rows, all in this folder."""
