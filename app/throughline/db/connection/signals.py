"""Signals that wake tasks of this process which wait for work or for a run's events; the notifier sets them.

A signal is not guaranteed to arrive: waiting tasks query again after a timeout, so a lost connection only delays them.
"""

import asyncio
from collections.abc import Callable, Sequence

from throughline.domain.events import RunEvent
from throughline.ports.storage import Seen

MOST_KEPT = 256
"""Most events kept for a slow reader; beyond this number all are dropped, and the reader reads the table."""


class Signal:
    """A signal that stays set until the next `wait`, so that no call of `wake` between two waits is missed.

    `polls_alone`: other processes do not wake it, so that their changes are found by polling alone.
    """

    def __init__(self, *, polls_alone: bool = False) -> None:
        self.polls_alone = polls_alone
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


class QueueSignal(Signal):
    """The signal that runs are queued. This process's worker claims them if it can, else other processes are notified.

    A run that several processes were told of would be looked for by each of them, and found by one.
    """

    def __init__(self, notify_others: Callable[[], None], *, polls_alone: bool = False) -> None:
        """Call `notify_others` for runs that this process may leave to others."""
        super().__init__(polls_alone=polls_alone)
        self._notify_others = notify_others
        self._can_claim: Callable[[], bool] = lambda: False
        self._is_kept = False

    def claim_here(self, can_claim: Callable[[], bool]) -> None:
        """Keep announced runs to this process while `can_claim`: its worker is claiming and has a free slot."""
        self._can_claim = can_claim

    def announce(self) -> None:
        """Wake the worker of this process, and notify other processes unless it can claim."""
        self.wake()
        if self._can_claim():
            self._is_kept = True
        else:
            self._notify_others()

    def has_claimed_all(self, times: int) -> None:
        """Note that a claim found no more runs. `times` was the number of calls of `wake` when it began."""
        if self.times == times:
            self._is_kept = False

    def pass_on(self) -> None:
        """Notify other processes of the runs kept to this one, since its worker has no slot left or stops."""
        if self._is_kept:
            self._is_kept = False
            self._notify_others()


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
        self._must_read = False

    async def wait_beyond(self, seen: Seen, timeout_seconds: float) -> bool:
        """Wait as `wait` does. Meanwhile `seen` tells the poll of FollowedRuns what the reader has already seen."""
        self.seen = seen
        try:
            return await self.wait(timeout_seconds)
        finally:
            self.seen = None

    def wake(self) -> None:
        """End the current or the next wait, for a change that only the database shows."""
        self._must_read = True
        super().wake()

    def bring(self, events: Sequence[RunEvent]) -> None:
        """Wake the reader and keep the events, which are already stored, for it.

        If more than MOST_KEPT would be kept, all are dropped.
        """
        if not events or len(self._events) + len(events) > MOST_KEPT:
            self._events.clear()
            self.wake()
        else:
            self._events.extend(events)
            super().wake()

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that follow `seq` without a gap, after which the table has no others until the next signal.

        Return none if there is a gap, or if other processes may have written events, so that the table must be read.
        Pending signals are cleared, since the reader then has the current state.
        """
        events = [event for event in self._events if event.seq > seq]
        must_read, self._must_read = self._must_read, False
        self._events.clear()
        self._woken.clear()
        if must_read or not events or events[0].seq != seq + 1 or events[-1].seq != seq + len(events):
            return ()
        return tuple(events)
