"""Access to runs for readers, who wait for events of a run or for its end.

Notifications wake readers, and one poll for all readers of this process finds changes without a notification. The poll
is at most one statement a second for any number of readers, or ten where the service polls alone. Readers of changed
runs are woken and read for themselves.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import structlog

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import CLOSED
from throughline.db.connection.signals import RunSignal
from throughline.db.connection.transactions import Transactions
from throughline.db.runs.events import EventRepository
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    MESSAGE_IDS,
    PINNED,
    RUN_COLUMNS,
    message_from,
    run_from,
    run_not_found,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId
from throughline.domain.errors import DatabaseUnusable
from throughline.domain.events import (
    REPLAYED_END_SEQ,
    AnswerReset,
    Event,
    MessageCompleted,
    RunEnded,
    RunEvent,
    RunWaiting,
    ToolAnswered,
    ToolCalled,
)
from throughline.domain.message import Message, Role
from throughline.domain.run import Run, RunStatus
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.poll_pace import PollPace

# Reconstruction of a run's events from its stored messages, for readers after the events were deleted.
#
# The run has ended, or waits for something from outside.


def replay_events(run: Run, messages: tuple[Message, ...]) -> tuple[RunEvent, ...]:
    """Return the events of an ended or waiting run: `reset`, one for each message and tool call, and the last one.

    The numbers end with REPLAYED_END_SEQ and match no stored event. A reader that resumes after any of them except the
    last gets all events again.
    """
    events = [AnswerReset(run.attempt), *_steps(messages), last_event(run, messages)]
    first = REPLAYED_END_SEQ - len(events) + 1
    return tuple(RunEvent(run.id, first + index, event) for index, event in enumerate(events))


def last_event(run: Run, messages: tuple[Message, ...]) -> RunEnded | RunWaiting:
    """Return the last event of an ended or waiting run; that of an ended one with its answer if `messages` has it."""
    if run.status is RunStatus.WAITING:
        step = next(message for message in reversed(messages) if message.tool_calls)
        return RunWaiting(run, step.id)
    return RunEnded(run, next((message for message in messages if message.id == run.message_id), None))


def _steps(messages: tuple[Message, ...]) -> Iterator[Event]:
    for message in messages:
        if message.role is Role.TOOL:
            yield ToolAnswered(message)
            continue
        yield MessageCompleted(message)
        for call in message.tool_calls:
            yield ToolCalled(call, message.id)


DISCONNECTED_POLL_SECONDS = 1.0
"""Seconds between polls while notifications of other processes do not arrive."""

LONGEST_POLL_SECONDS = 0.25
"""Most seconds between polls where the service polls alone, so that an answer is read while it is written."""

LISTENING_SECONDS = 3.0
"""Seconds between polls while notifications arrive. The poll then finds only changes whose notification was lost."""

WORKED_ON_SECONDS = 1.0
"""Seconds for which the answer of `has_running_worker` is shared by all readers."""

MOST_READING = 4
"""Readers that may read at the same time, so that other requests get connections when all readers are woken."""

_NEWER = sql("""
    select w.run_id
    from unnest(cast(:run_ids as uuid[]), cast(:seqs as integer[]), cast(:statuses as text[]))
        as w (run_id, seq, status)
    where (select r.status from runs r where r.id = w.run_id) is distinct from w.status
        or exists (select 1 from run_events e where e.run_id = w.run_id and e.seq > w.seq)
""")
_WORKED_ON = sql("""
    select exists (select 1 from runs r where r.status = 'running' and r.lease_until > now()) as is_worked_on
""")
_RUN = sql(
    "select {run_columns}, {message_ids} from runs r where r.id = :run_id",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_WAITING = sql(
    """
    select {run_columns}, {message_ids} from runs r
    where r.session_id = :session_id and r.status = 'waiting' and r.id <> :run_id
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_MESSAGES = sql(
    """
    select {message_columns}, {pinned} from messages m
    where m.run_id = :run_id and m.role <> 'user' order by m.position
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
log = structlog.get_logger(__name__)


class RunFollower:
    """Access to runs for readers; implements the interface FollowedRuns (ports/storage.py)."""

    def __init__(self, transactions: Transactions, notifier: Notifier, events: EventRepository) -> None:
        """Read through `transactions` and `events`, for readers that subscribed to `notifier`."""
        self._reading = asyncio.Semaphore(MOST_READING)
        self._events = events
        self._transactions = transactions
        self._notifier = notifier
        self._looking: asyncio.Task[None] | None = None
        self._pace = PollPace(LONGEST_POLL_SECONDS)
        self._asking: asyncio.Task[bool] | None = None
        self._asked_at = float("-inf")

    @asynccontextmanager
    async def follow(self, run_id: RunId, *, ends_only: bool = False) -> AsyncGenerator[RunSignal]:
        async with self._notifier.subscribe(run_id, ends_only=ends_only) as signal:
            self._pace.restart()
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._poll(), name="look at followed runs")
            yield signal

    async def find(self, run_id: RunId) -> Run | None:
        """Return the run, regardless of its owner; None if it was erased."""
        rows = await self._transactions.fetch(_RUN, run_id=run_id)
        return run_from(rows[0]) if rows else None

    async def reload(self, run: Run) -> Run:
        found = await self.find(run.id)
        if found is None:
            raise run_not_found(run.id)
        return found

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        async with self._reading:
            return await self._events.read_events(run_id, after_seq, limit)

    async def replay(self, run: Run) -> tuple[RunEvent, ...]:
        return replay_events(run, await self._messages(run))

    async def ending(self, run: Run) -> RunEnded | RunWaiting:
        return last_event(run, await self._messages(run))

    async def find_waiting(self, run: Run) -> Run | None:
        if run.status is not RunStatus.QUEUED:
            return None
        rows = await self._transactions.fetch(_WAITING, session_id=run.session_id, run_id=run.id)
        return run_from(rows[0]) if rows else None

    async def has_running_worker(self) -> bool:
        asking = self._asking
        if asking is None or (asking.done() and time.monotonic() - self._asked_at >= WORKED_ON_SECONDS):
            self._asked_at = time.monotonic()
            asking = self._asking = asyncio.create_task(
                self._has_running_worker(), name="look for runs that are worked on"
            )
            asking.add_done_callback(_notice)
        await asyncio.wait({asking})
        if asking.cancelled():
            raise DatabaseUnusable(CLOSED)
        return asking.result()

    async def close(self) -> None:
        """Stop polling and end the statement of `has_running_worker`."""
        tasks = [task for task in (self._looking, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _messages(self, run: Run) -> tuple[Message, ...]:
        rows = await self._transactions.fetch(_MESSAGES, run_id=run.id, session_id=run.session_id)
        return tuple(message_from(row) for row in rows)

    async def _has_running_worker(self) -> bool:
        return bool((await self._transactions.fetch(_WORKED_ON))[0]["is_worked_on"])

    async def _poll(self) -> None:
        while self._notifier.has_readers:
            await asyncio.sleep(self._pause())
            with ErrorBoundary(log.warning, "run polling failed") as look:
                await self._look()
            if look.error is not None:
                self._notifier.wake_readers()  # each reader looks itself, and can report the failure

    def _pause(self) -> float:
        if not self._notifier.listens:
            return self._pace.seconds()
        return LISTENING_SECONDS if self._notifier.is_listening else DISCONNECTED_POLL_SECONDS

    async def _look(self) -> None:
        seen = self._notifier.seen_by_readers()
        if not seen:
            return
        rows = await self._transactions.fetch(
            _NEWER,
            run_ids=[one.run_id for one in seen],
            seqs=[one.seq for one in seen],
            statuses=[one.status.value for one in seen],
        )
        if rows:
            self._pace.restart()
        self._notifier.wake_runs({RunId(row["run_id"]) for row in rows})


def _notice(asked: asyncio.Task[bool]) -> None:
    """Retrieve the task's error, so that asyncio reports none if all callers are gone."""
    if not asked.cancelled():
        asked.exception()
