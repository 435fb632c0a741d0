"""A module that cannot be imported."""

BROKEN = 1 // 0
