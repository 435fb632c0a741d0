"""Garbage collector of Python, set for a process that serves for weeks. Each program calls it once it is set up."""

import gc

YOUNG_OBJECTS = 8_000
YOUNG_PASSES = 10
MIDDLE_PASSES = 40
"""With Python's own thresholds (700, 10, 10) each turn cost passes over all that is kept, more so the more was kept: a
tenth of the time after two minutes of load, and pauses of a quarter of a second.
Python counts objects made less objects freed, so a young pass of a steady load walks up to five times YOUNG_OBJECTS."""


def tune_collector() -> None:
    """Let the collector never look at what is loaded by now, and seldom at all else."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, MIDDLE_PASSES)
