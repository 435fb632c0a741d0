"""Where tests keep what never has to outlive them: in memory, where the machine has enough of it.

A database on a disk costs a test a tenth of a second of the kernel's time, in memory a seventh of that.
"""

import shutil
from functools import cache
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system in memory; only folders with random names are made in it
LEAST_FREE_BYTES = 6_000_000_000
"""Four test processes, each with a server of some hundred megabytes, and as much again for everybody else."""


@cache
def memory_folder() -> str | None:
    """Return a folder in memory for `tempfile`'s `dir`, or None, its default, where there is not enough of it."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return str(MEMORY) if min(free, psutil.virtual_memory().available) >= LEAST_FREE_BYTES else None
