"""Summaries: written step by step for a turn, ahead of one or on demand, stored, and put in use by moving a cursor."""
