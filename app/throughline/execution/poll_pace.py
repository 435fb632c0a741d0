"""The pauses of a poll that no notification hastens: short after a change, and longer the longer nothing changes.

Claim loops and the poll for readers of runs use them where the service polls alone (DATABASE_LISTEN=false).
"""

import time
from collections.abc import Callable

SHORTEST_SECONDS = 0.1
PART_OF_SILENCE = 60.0
"""A pause is this part of the time since the last change: after a quarter of a minute it is a quarter of a second."""


class PollPace:
    """The pause before the next poll, from SHORTEST_SECONDS up to `longest_seconds`."""

    def __init__(self, longest_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin with the shortest pause."""
        self._longest_seconds = longest_seconds
        self._monotonic = monotonic
        self._changed_at = monotonic()

    def restart(self) -> None:
        """Note a change, after which others may follow soon."""
        self._changed_at = self._monotonic()

    def seconds(self) -> float:
        """Return the pause before the next poll."""
        silence = self._monotonic() - self._changed_at
        return min(max(SHORTEST_SECONDS, silence / PART_OF_SILENCE), self._longest_seconds)
