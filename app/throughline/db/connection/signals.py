"""Wakes whoever waits for a run, its events or its cancel in this process.

Waking is a courtesy, never a promise: whoever waits looks again after its timeout, so a lost connection only makes
things slower.
"""

import asyncio
from collections.abc import Sequence

from throughline.domain.events import RunEvent
from throughline.ports.followed_runs import Seen

MOST_KEPT = 256
"""Events kept for a reader who is slow; beyond it the reader goes to the table again."""


class Signal:
    """Remembers that it was woken until the next wait, so that nothing is missed between two waits."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._woken = asyncio.Event()
        self.times = 0

    async def wait(self, timeout_seconds: float) -> bool:
        """Return True when woken since the last wait, False after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """End the wait, or the next one. `times` says how often it was."""
        self.times += 1
        self._woken.set()


class RunSignal(Signal):
    """Wakes a reader of one run, and may bring the new events with it: those written in this very process.

    `seen` is what its reader has seen, None while it does not wait. With `ends_only` it is woken when the run may have
    ended, and by those who look after readers: not for each event.
    """

    def __init__(self, *, ends_only: bool = False) -> None:
        """Start with nothing."""
        super().__init__()
        self.ends_only = ends_only
        self.seen: Seen | None = None
        self._events: list[RunEvent] = []

    async def wait_behind(self, seen: Seen, timeout_seconds: float) -> bool:
        """Wait as `wait`, and let those who look after readers know what this one has seen."""
        self.seen = seen
        try:
            return await self.wait(timeout_seconds)
        finally:
            self.seen = None

    def bring(self, events: Sequence[RunEvent]) -> None:
        """Wake, with events that are stored by now."""
        if len(self._events) + len(events) > MOST_KEPT:
            self._events.clear()
        else:
            self._events.extend(events)
        self.wake()

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that follow `seq` without a gap; where there is one, the table has to be read.

        Whoever looks here or there knows what there is: the next wait waits.
        """
        events = [event for event in self._events if event.seq > seq]
        self._events.clear()
        self._woken.clear()
        if not events or events[0].seq != seq + 1 or events[-1].seq != seq + len(events):
            return ()
        return tuple(events)
