"""Judges how work grows with its input, by this thread's processor time: other work on the machine is not in it."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FACTOR = 4
"""How much larger the larger input is."""

MOST_GROWTH = 2.0 * FACTOR
"""Linear work grows by FACTOR, quadratic work by its square; what lies between is left to caches and chance."""

NOTHING_SECONDS = 0.02
"""Work that takes no longer than this for the larger input is too short to be judged, and cheap enough."""

TRIES = 5


def grows_linearly(work: Callable[[T], object], make: Callable[[int], T], size: int) -> bool:
    """Whether `work` takes at most in proportion longer for `make(FACTOR * size)` than for `make(size)`.

    A disturbance only ever adds time, so the least of several measurements counts, and one good comparison is enough.
    """
    small, large = make(size), make(FACTOR * size)
    work(small)
    best_small = best_large = float("inf")
    for _ in range(TRIES):
        best_small = min(best_small, processor_seconds(work, small))
        best_large = min(best_large, processor_seconds(work, large))
        if best_large <= max(NOTHING_SECONDS, MOST_GROWTH * best_small):
            return True
    return False


def processor_seconds(work: Callable[[T], object], given: T) -> float:
    """Return the processor time of this thread that the work takes."""
    started = time.thread_time()
    work(given)
    return time.thread_time() - started
