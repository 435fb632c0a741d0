"""Summaries of sessions: written for a turn, in the background or on demand, stored, and adopted.

Adopting a summary moves the session's cursor, the last position that the summary covers.
"""
