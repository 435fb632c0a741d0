"""Slots, or bytes, for what may be under way at once in a process, of which each owner may have a share only."""

import threading
from collections import Counter
from enum import Enum

from throughline.domain.ids import UserId


class Taken(Enum):
    """Why there is no place left."""

    BY_ALL = "by_all"
    BY_OWNER = "by_owner"


class OwnerLimits:
    """Counts what is taken, of each owner and in all; may be called from any thread."""

    def __init__(self, most: int, most_of_owner: int) -> None:
        """Allow `most` in all, and each owner `most_of_owner` of them."""
        self.most = most
        self.most_of_owner = most_of_owner
        self._taken: Counter[UserId | None] = Counter()
        self._lock = threading.Lock()

    def take(self, owner_id: UserId | None, amount: int = 1) -> Taken | None:
        """Take `amount`; where less is left, return why. What belongs to nobody (None) has no share to keep to."""
        with self._lock:
            if owner_id is not None and self._taken[owner_id] + amount > self.most_of_owner:
                return Taken.BY_OWNER
            if self._taken.total() + amount > self.most:
                return Taken.BY_ALL
            self._taken[owner_id] += amount
            return None

    def give_back(self, owner_id: UserId | None, amount: int = 1) -> None:
        """Give `amount` back."""
        with self._lock:
            self._taken -= Counter({owner_id: amount})  # which forgets who has none left
