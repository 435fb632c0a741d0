"""Where tests keep what never has to outlive them: in memory, where the machine has enough of it.

A database on a disk costs a test a tenth of a second of the kernel's time, in memory a seventh of that.
"""

import os
import shutil
from functools import cache
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system in memory; only folders with random names are made in it
LEAST_FREE_BYTES = 6_000_000_000
"""Far more than a run takes (a server and some copies of its data, under a gigabyte): others use the memory, too."""


@cache
def memory_folder() -> str | None:
    """Return a folder in memory for `tempfile`'s `dir`, or None, its default, where there is too little or none."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    is_enough = min(free, psutil.virtual_memory().available) >= LEAST_FREE_BYTES
    return str(MEMORY) if is_enough and os.access(MEMORY, os.W_OK) else None
