"""Shares of the places for side jobs: what one owner, or one sort of jobs, may have of them at once."""

import time
from collections import Counter
from collections.abc import Callable, Hashable
from datetime import timedelta

PAUSE_EACH = timedelta(seconds=0.25)


class Shares:
    """Counts the places each key has taken. Who finds none is told to come when nobody else of the key does.

    So however many jobs of one owner wait, they ask for their places at most four times a second, each after all that
    were told so before it. Of what comes for the first time nothing is known yet: that asks once more.
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        """Let each key have `most` places, at least one. `now` is a time in seconds that never goes back."""
        self._most = max(1, most)
        self._now = now
        self._taken: Counter[Hashable] = Counter()
        self._last_told: dict[Hashable, float] = {}

    def take(self, key: Hashable) -> timedelta | None:
        """Take a place; where the key has none left, return after how long to ask again."""
        if self._taken[key] < self._most:
            self._taken[key] += 1
            return None
        now = self._now()
        told = max(self._last_told.get(key, now), now) + PAUSE_EACH.total_seconds()
        self._last_told[key] = told
        return timedelta(seconds=told - now)

    def give_back(self, key: Hashable) -> None:
        """Give a place back."""
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
            self._forget_what_is_over()

    def _forget_what_is_over(self) -> None:
        """Keep the times that are still to come: those who were told them come then, place or no place."""
        now = self._now()
        for key in [key for key, told in self._last_told.items() if told <= now]:
            del self._last_told[key]
