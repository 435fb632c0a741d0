"""The event writer of one run: numbers events, joins text deltas, stores them in batches while the turn goes on."""

import asyncio
from dataclasses import dataclass

import structlog

from throughline.domain.errors import LeaseLost, TemporaryError
from throughline.domain.events import AnswerReset, Event, MessageCompleted, MessageDelta, NewEvent
from throughline.domain.run import ClaimedRun
from throughline.ports.storage import EventStore

FLUSH_SECONDS = 0.05
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unstored:
    """Events that are not stored yet, and the number of the one that comes after them."""

    events: tuple[NewEvent, ...]
    next_seq: int


class EventWriter:
    """Collects a run's events; `emit` never waits, a background flush stores them about every 50 ms.

    `shown_text` is the answer text readers have been given since the last completed message: what is kept of an
    answer that is stopped in the middle.
    """

    def __init__(self, store: EventStore, claimed: ClaimedRun) -> None:
        """Start numbering at the first sequence number the claim left free."""
        self._store = store
        self._lease = claimed.lease
        self._next_seq = claimed.next_event
        self._pending: list[NewEvent] = []
        self._deltas: list[str] = []
        self._shown: list[str] = []
        self._flushing: asyncio.Task[None] | None = None
        self._storing = asyncio.Lock()

    @property
    def shown_text(self) -> str:
        """The text shown since the last completed message or reset."""
        return "".join(self._shown)

    def emit(self, event: Event) -> None:
        """Queue one event behind everything emitted before."""
        self._close_delta()
        self._queue(event)
        if isinstance(event, MessageCompleted | AnswerReset):
            self._shown.clear()
        self._schedule_flush()

    def emit_text(self, text: str) -> None:
        """Queue a piece of the answer; pieces that wait together become one event."""
        self._deltas.append(text)
        self._shown.append(text)
        self._schedule_flush()

    async def drain(self) -> Unstored:
        """Stop flushing and return what is not stored yet, for the transaction that ends the run."""
        await self._stop_flushing()
        async with self._storing:
            self._close_delta()
            return Unstored(tuple(self._pending), self._next_seq)

    def _queue(self, event: Event) -> None:
        self._pending.append(NewEvent(self._next_seq, event))
        self._next_seq += 1

    def _close_delta(self) -> None:
        if self._deltas:
            self._queue(MessageDelta("".join(self._deltas)))
            self._deltas.clear()

    def _schedule_flush(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        while self._pending or self._deltas:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self._flush()
            except LeaseLost:
                return  # the heartbeat stops the turn; nothing of ours may be written any more
            except TemporaryError as error:
                log.warning("run events wait for the database", run_id=str(self._lease.run_id), error=error.code)

    async def _flush(self) -> None:
        async with self._storing:
            self._close_delta()
            batch = tuple(self._pending)
            if batch:
                await self._store.append_events(self._lease, batch)
                del self._pending[: len(batch)]

    async def _stop_flushing(self) -> None:
        task, self._flushing = self._flushing, None
        if task is None or task.done():
            return
        async with self._storing:  # a batch under way is stored first: cancelling it would leave its fate unknown
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
