"""Event writer of one run: numbers events, joins deltas, and stores them in batches while the turn runs."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from throughline.domain import prompt
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import LeaseLost, TemporaryError
from throughline.domain.events import (
    AnswerReset,
    Event,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    ToolCallDelta,
)
from throughline.domain.run import ClaimedRun
from throughline.ports.storage import EventStore

FLUSHING = "store run events"
FLUSH_SECONDS = 0.05
"""Seconds between the moments at which all runs of the process store their events, in one statement."""

Part: TypeAlias = MessageDelta | ReasoningDelta | ToolCallDelta
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unstored:
    """Events that are not stored yet, and the sequence number that follows them."""

    events: tuple[NewEvent, ...]
    next_seq: int


class EventWriter:
    """Buffer of a run's events. `emit` never waits; a background task stores the buffer about every 50 ms.

    That task runs in the context in which the writer was created, so that a trace shows it below the turn and not below
    the node that happened to emit.
    With `shows_reasoning` readers get the model's reasoning too. `has_shown` says whether they were sent any part of a
    message since the last completed message or reset.
    `message_id` is the id of the message that the model writes now, under which it has to be stored. It is a new one
    after each completed message and after each reset, so that no id names two messages.
    """

    def __init__(self, store: EventStore, claimed: ClaimedRun, new_message_id: Callable[[], MessageId]) -> None:
        """Start numbering at the first sequence number that is free after the claim."""
        self._store = store
        self._new_message_id = new_message_id
        self.message_id = new_message_id()
        self._lease = claimed.lease
        self._next_seq = claimed.next_event
        self._pending: list[NewEvent] = []
        self._deltas: list[str] = []
        self._begun: Part | None = None
        self._shown: list[str] = []
        self.has_shown = False
        self.shows_reasoning = True
        self._flushing: asyncio.Task[None] | None = None
        self._storing = asyncio.Lock()
        self._context = copy_context()

    @property
    def shown_text(self) -> str:
        """The answer text that readers were sent since the last completed message or reset.

        It is what is kept of an answer that is interrupted.
        """
        return "".join(self._shown)

    def emit(self, event: Event) -> None:
        """Queue one event after all events emitted before."""
        self._close_delta()
        self._queue(event)
        if isinstance(event, MessageCompleted | AnswerReset):
            self._shown.clear()
            self.has_shown = False
            self.message_id = self._new_message_id()
        self._schedule_flush()

    def emit_text(self, text: str) -> None:
        """Queue a piece of the answer's text; pieces in the buffer are joined into one event."""
        self._shown.append(text)
        self._add_delta(MessageDelta(self.message_id, ""), text)

    def emit_reasoning(self, text: str) -> None:
        """Queue a piece of the reasoning as `emit_text` does, if readers are to get it."""
        if self.shows_reasoning:
            self._add_delta(ReasoningDelta(self.message_id, ""), text)

    def emit_arguments(self, piece: prompt.ToolCallPiece) -> None:
        """Queue a piece of a tool call's arguments; pieces of one call in the buffer are joined into one event."""
        begun = ToolCallDelta(self.message_id, piece.index, piece.call_id, piece.name, "")
        self._add_delta(begun, piece.text)

    async def drain(self) -> Unstored:
        """Stop flushing and return the events that are not stored yet, for the transaction that ends the run."""
        await self._stop_flushing()
        async with self._storing:
            self._close_delta()
            return Unstored(tuple(self._pending), self._next_seq)

    def _queue(self, event: Event) -> None:
        self._pending.append(NewEvent(self._next_seq, event))
        self._next_seq += 1

    def _add_delta(self, begun: Part, text: str) -> None:
        """Add a piece to the delta in the buffer; it is another delta, begun without text, if anything else differs."""
        if begun != self._begun:
            self._close_delta()
            self._begun = begun
        self._deltas.append(text)
        self.has_shown = True
        self._schedule_flush()

    def _close_delta(self) -> None:
        if self._begun is not None:
            self._queue(_with_text(self._begun, "".join(self._deltas)))
            self._deltas.clear()
            self._begun = None

    def _schedule_flush(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later(), name=FLUSHING, context=self._context)

    async def _flush_later(self) -> None:
        while self._pending or self._deltas:
            await asyncio.sleep(_seconds_to_flush(asyncio.get_running_loop().time()))
            try:
                await self._flush()
            except LeaseLost:
                return  # the heartbeat stops the turn; this process may write nothing more
            except TemporaryError as error:
                log.warning("run events not stored yet, retried", run_id=str(self._lease.run_id), error=error.code)

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
        async with self._storing:  # let a running batch finish: after a cancel nobody would know whether it was stored
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _seconds_to_flush(now: float) -> float:
    """Return the seconds to the next moment at which events are stored, FLUSH_SECONDS on average.

    It is at least half of that away, so that a short turn stores its events with its end.
    """
    return FLUSH_SECONDS / 2 + -(now + FLUSH_SECONDS / 2) % FLUSH_SECONDS


def _with_text(begun: Part, text: str) -> Part:
    if isinstance(begun, ToolCallDelta):
        return replace(begun, arguments_delta=text)
    return replace(begun, text=text)
