"""Retention: deleting what has served its time, the only folder that does."""
