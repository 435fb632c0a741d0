"""An event store in memory that can be made to fail, and a reader of event streams."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import httpx

from throughline.domain.basic_types import MessageId, RunId, SessionId, UserId
from throughline.domain.events import HistoryQuoted, MemoriesQuoted, NewEvent, RunEvent
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

    async def newest_quoted(self, session_id: SessionId) -> tuple[HistoryQuoted | None, MemoriesQuoted | None]:
        del session_id
        events = [new.event for new in reversed(self.events)]
        return (
            next((event for event in events if isinstance(event, HistoryQuoted)), None),
            next((event for event in events if isinstance(event, MemoriesQuoted)), None),
        )


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


STREAM = {"Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One event as a reader sees it."""

    id: int
    type: str
    data: dict[str, object]


@asynccontextmanager
async def sending(client: httpx.AsyncClient, session: str, content: str) -> AsyncGenerator[AsyncIterator[Seen]]:
    """Send a message and yield the events of its run as they come."""
    path = f"/v1/sessions/{session}/messages"
    async with client.stream("POST", path, json={"content": content}, headers=STREAM) as response:
        yield _events(response)


@asynccontextmanager
async def following(client: httpx.AsyncClient, run: str, after: int = 0) -> AsyncGenerator[AsyncIterator[Seen]]:
    """Yield the events of a run behind number `after` as they come."""
    headers = {**STREAM, "Last-Event-ID": str(after)}
    async with client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
        yield _events(response)


async def until(events: AsyncIterator[Seen], event_type: str) -> list[Seen]:
    """Read up to the first event of the type; fails where the stream ends before."""
    seen = []
    async for event in events:
        seen.append(event)
        if event.type == event_type:
            return seen
    told = [event.type for event in seen], [event.data.get("error") for event in seen[-1:]]
    raise AssertionError(f"the stream ended before {event_type}: {told}")


async def until_cut(events: AsyncIterator[Seen]) -> list[Seen]:
    """Read until the server cuts the connection; fails where the stream ends cleanly."""
    seen = []
    try:
        async for event in events:
            seen.append(event)  # noqa: PERF401  # what was read before the cut counts
    except httpx.RemoteProtocolError:
        return seen
    raise AssertionError(f"the stream ended cleanly: {[event.type for event in seen]}")


def text_of(events: list[Seen]) -> str:
    """Return the answer's text as its readers have been shown it."""
    return "".join(str(event.data["text"]) for event in events if event.type == "message.delta")


async def _events(response: httpx.Response) -> AsyncGenerator[Seen]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and fields:
            yield Seen(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
