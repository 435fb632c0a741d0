"""An event store in memory that can be made to fail: the fake behind the turn's EventStore port."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from throughline.domain.basic_types import MessageId, RunId, SessionId, UserId
from throughline.domain.events import HistoryQuoted, NewEvent, RunEvent
from throughline.domain.message import Source
from throughline.domain.run import ClaimedRun, Lease, Run, RunInput, RunStatus

MESSAGE_ID = MessageId(UUID(int=5))
"""Of the message whose parts an event tells, where a test does not ask for it."""

LEASE = Lease(RunId(UUID(int=1)), 1, SessionId(UUID(int=2)))


class EventLog:
    """Keeps batches; raises each error of `failures` once, in order, before it stores again."""

    def __init__(self) -> None:
        self.batches: list[tuple[NewEvent, ...]] = []
        self.failures: list[Exception] = []

    @property
    def events(self) -> list[NewEvent]:
        return [event for batch in self.batches for event in batch]

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        del lease
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(tuple(events))

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        found = [RunEvent(run_id, new.seq, new.event) for new in self.events if new.seq > after_seq]
        return tuple(found[:limit])

    async def newest_quoted(self, session_id: SessionId) -> HistoryQuoted | None:
        del session_id
        return next((new.event for new in reversed(self.events) if isinstance(new.event, HistoryQuoted)), None)


def claimed(next_event: int = 1) -> ClaimedRun:
    run = Run(
        id=LEASE.run_id,
        session_id=LEASE.session_id,
        owner_id=UserId(UUID(int=3)),
        agent="assistant",
        seq=1,
        status=RunStatus.RUNNING,
        input=RunInput("hi"),
        source=Source.API,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        user_message_id=MessageId(UUID(int=4)),
        attempt=1,
    )
    return ClaimedRun(run=run, lease=LEASE, next_event=next_event)
