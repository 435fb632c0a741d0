"""Wakes whoever waits: in this process at once, in others through NOTIFY.

Waking is a courtesy, never a promise: whoever waits looks again after its timeout, so a lost connection only makes
things slower.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import structlog

from app.db.address import Address
from app.db.listener import Listener
from app.db.notification import Notification, read_payload, write_payloads
from app.db.wakeup import RunWakeup, Seen, Wakeup
from app.domain.events import NewEvent, RunEvent
from app.domain.ids import RunId

GATHER_SECONDS = 0.01
OnCancel: TypeAlias = Callable[[RunId], None]
log = structlog.get_logger(__name__)


class EventHub:
    """Wakes readers of runs, claim loops and holders of runs, in this process and in all others.

    `work` is woken when a run waits for a worker. One connection beside the pool listens and notifies.
    """

    def __init__(self, address: Address) -> None:
        """Nothing is connected before `start`."""
        self.work = Wakeup()
        self._listener = Listener(address, on_payload=self._hear, on_connected=self._wake_everybody)
        self._readers: defaultdict[RunId, set[RunWakeup]] = defaultdict(set)
        self._on_cancel: list[OnCancel] = []
        self._events: set[RunId] = set()
        self._cancels: set[RunId] = set()
        self._has_work = False
        self._telling: asyncio.Task[None] | None = None

    @property
    def is_listening(self) -> bool:
        """Whether notifications of other processes arrive; False means polling only."""
        return self._listener.is_connected

    @property
    def has_readers(self) -> bool:
        """Whether anybody in this process follows a run."""
        return bool(self._readers)

    def seen_by_readers(self) -> frozenset[Seen]:
        """Return what the readers that wait have seen."""
        return frozenset(
            wakeup.seen for readers in self._readers.values() for wakeup in readers if wakeup.seen is not None
        )

    async def start(self) -> None:
        """Begin to listen; returns after the first attempt, later ones go on in the background."""
        await self._listener.start()

    async def close(self) -> None:
        """Tell what is still to be told, and stop listening."""
        if self._telling is not None:
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._listener.close()

    @asynccontextmanager
    async def subscribe(self, run_id: RunId) -> AsyncGenerator[RunWakeup]:
        """Yield what is woken when the run has new events."""
        wakeup = RunWakeup()
        self._readers[run_id].add(wakeup)
        try:
            yield wakeup
        finally:
            self._readers[run_id].discard(wakeup)
            if not self._readers[run_id]:
                del self._readers[run_id]

    def on_cancel(self, callback: OnCancel) -> None:
        """Call `callback` with the id of every run that is asked to stop."""
        self._on_cancel.append(callback)

    def wake_runs(self, run_ids: Iterable[RunId]) -> None:
        """Wake the readers of these runs in this process."""
        for run_id in run_ids:
            for wakeup in self._readers.get(run_id, ()):
                wakeup.wake()

    def wake_readers(self) -> None:
        """Wake all readers in this process."""
        self.wake_runs(tuple(self._readers))

    def announce_events(self, run_id: RunId, events: Sequence[NewEvent] = ()) -> None:
        """Tell everybody that the run has new events; readers in this process are given them. Returns at once."""
        brought = [RunEvent(run_id, new.seq, new.event) for new in events]
        for wakeup in self._readers.get(run_id, ()):
            wakeup.bring(brought)
        self._events.add(run_id)
        self._tell_soon()

    def announce_work(self) -> None:
        """Tell everybody that a run waits for a worker. Returns at once."""
        self.work.wake()
        self._has_work = True
        self._tell_soon()

    def announce_cancel(self, run_id: RunId) -> None:
        """Tell everybody that the run is to stop. Returns at once."""
        self._cancel(run_id)
        self._cancels.add(run_id)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="notify other processes")

    async def _tell(self) -> None:
        """Gather what is new for a moment and send it in one statement, until there are none."""
        while self._events or self._cancels or self._has_work:
            await asyncio.sleep(GATHER_SECONDS)
            notification = Notification(frozenset(self._events), frozenset(self._cancels), self._has_work)
            self._events.clear()
            self._cancels.clear()
            self._has_work = False
            await self._listener.send(write_payloads(notification))

    def _hear(self, payload: str) -> None:
        notification = read_payload(payload)
        self.wake_runs(notification.events)
        for run_id in notification.cancels:
            self._cancel(run_id)
        if notification.has_work:
            self.work.wake()

    def _cancel(self, run_id: RunId) -> None:
        for callback in self._on_cancel:
            callback(run_id)

    def _wake_everybody(self) -> None:
        """After a gap anything may have happened: let everybody look."""
        self.work.wake()
        self.wake_readers()
