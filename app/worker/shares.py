"""Shares of the places for side jobs: what one owner, or one sort of jobs, may have of them at once."""

from collections import Counter
from collections.abc import Hashable
from datetime import timedelta

PAUSE_EACH = timedelta(seconds=0.25)
MOST_COUNTED = 120


class Shares:
    """Counts the places each key has taken. Who finds none stays away for longer the more others do so.

    So a thousand jobs of one owner ask for their places about as often as a few: at most four times a second, and once
    in half a minute each.
    """

    def __init__(self, most: int) -> None:
        """Let each key have `most` places, at least one."""
        self._most = max(1, most)
        self._taken: Counter[Hashable] = Counter()
        self._away: dict[Hashable, dict[str, None]] = {}

    def take(self, key: Hashable, subject: str) -> timedelta | None:
        """Take a place for the subject; where the key has none left, return after how long to ask again."""
        away = self._away.setdefault(key, {})
        away.pop(subject, None)
        if self._taken[key] < self._most:
            self._taken[key] += 1
            return None
        away[subject] = None
        if len(away) > MOST_COUNTED:
            del away[next(iter(away))]
        return PAUSE_EACH * len(away)

    def give_back(self, key: Hashable) -> None:
        """Give a place back."""
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key], self._away[key]
