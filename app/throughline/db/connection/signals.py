"""Signals that wake tasks of this process which wait for work or for a run's events.

A signal is not guaranteed to arrive: waiting tasks query again after a timeout, so a lost connection only delays them.
"""

import asyncio
from collections.abc import Sequence

from throughline.domain.events import RunEvent
from throughline.ports.storage import Seen

MOST_KEPT = 256
"""Most events kept for a slow reader; beyond this number all are dropped, and the reader reads the table."""


class Signal:
    """A signal that stays set until the next `wait`, so that no call of `wake` between two waits is missed."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self.times = 0

    async def wait(self, timeout_seconds: float) -> bool:
        """Return True once woken since the last wait, False after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """End the current or the next wait. `times` counts the calls."""
        self.times += 1
        self._woken.set()


class RunSignal(Signal):
    """The signal of one run's reader; it can carry new events that this process wrote.

    `seen` is the event number and status that the reader has seen, None while it does not wait. With `ends_only` single
    events do not wake it, only a possible end of the run and the poll for all readers.
    """

    def __init__(self, *, ends_only: bool = False) -> None:
        super().__init__()
        self.ends_only = ends_only
        self.seen: Seen | None = None
        self._events: list[RunEvent] = []

    async def wait_beyond(self, seen: Seen, timeout_seconds: float) -> bool:
        """Wait as `wait` does. Meanwhile `seen` tells the poll of FollowedRuns what the reader has already seen."""
        self.seen = seen
        try:
            return await self.wait(timeout_seconds)
        finally:
            self.seen = None

    def bring(self, events: Sequence[RunEvent]) -> None:
        """Wake the reader and keep the events, which are already stored, for it.

        If more than MOST_KEPT would be kept, all are dropped.
        """
        if len(self._events) + len(events) > MOST_KEPT:
            self._events.clear()
        else:
            self._events.extend(events)
        self.wake()

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that follow `seq` without a gap; empty if there is a gap and the table must be read.

        Pending signals are cleared, since the reader now has the current state.
        """
        events = [event for event in self._events if event.seq > seq]
        self._events.clear()
        self._woken.clear()
        if not events or events[0].seq != seq + 1 or events[-1].seq != seq + len(events):
            return ()
        return tuple(events)
