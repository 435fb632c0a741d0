"""Limits on slots or bytes in use in a process, in total and per owner."""

import threading
from collections import Counter
from enum import Enum

from throughline.domain.ids import UserId


class LimitReached(Enum):
    """Which limit is reached: the total or the owner's share."""

    BY_ALL = "by_all"
    BY_OWNER = "by_owner"


class OwnerLimits:
    """Counters of the amounts in use, in total and per owner, with a limit for each. Thread-safe."""

    def __init__(self, most: int, most_of_owner: int) -> None:
        """Allow `most` in total and `most_of_owner` per owner."""
        self.most = most
        self.most_of_owner = most_of_owner
        self._taken: Counter[UserId | None] = Counter()
        self._lock = threading.Lock()

    def take(self, owner_id: UserId | None, amount: int = 1) -> LimitReached | None:
        """Take `amount` and return None; if too little is left, take nothing and return the limit that is reached.

        Work without an owner (None) counts only towards the total.
        """
        with self._lock:
            if owner_id is not None and self._taken[owner_id] + amount > self.most_of_owner:
                return LimitReached.BY_OWNER
            if self._taken.total() + amount > self.most:
                return LimitReached.BY_ALL
            self._taken[owner_id] += amount
            return None

    def give_back(self, owner_id: UserId | None, amount: int = 1) -> None:
        """Return `amount` to the owner's share and the total."""
        with self._lock:
            self._taken -= Counter({owner_id: amount})  # removes owners whose amount is 0
