"""Storage of run events: written in batches by the process that executes the run, read by readers of the run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.runs.joined_events import EventBatch, JoinedEvents, StoreResult
from throughline.db.statements.rows import (
    MESSAGE_COLUMNS,
    RUN_COLUMNS,
    USER_MESSAGE_ID,
    lease_lost,
    message_from,
    prefixed,
    run_from,
    to_json,
)
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import JsonObject, JsonValue, MessageId, RunId, SessionId, UserId
from throughline.domain.elicitation import ASK_USER
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    EventType,
    GraphEvent,
    HistoryQuoted,
    MemoriesQuoted,
    MessageCompleted,
    MessageDelta,
    NewEvent,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
    ToolProgress,
    end_type,
)
from throughline.domain.message import Message, ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Lease, Run, RunStatus
from throughline.domain.summary import CompactionOutcome
from throughline.domain.tool import AwaitedCall, NewWait, Wait, WaitKind, awaited

Stored = Mapping[str, Any]  # Any: the JSON's shape depends on the event type

FieldByField = AnswerReset | CompactionStarted | HistoryQuoted | MemoriesQuoted | ToolProgress | GraphEvent

KNOWN_TYPES = frozenset(EventType)
STORED_FIELD_BY_FIELD: Mapping[EventType, type[FieldByField]] = {
    EventType.RESET: AnswerReset,
    EventType.COMPACTION_STARTED: CompactionStarted,
    EventType.HISTORY_QUOTED: HistoryQuoted,
    EventType.MEMORIES_QUOTED: MemoriesQuoted,
    EventType.TOOL_PROGRESS: ToolProgress,
    EventType.GRAPH_EVENT: GraphEvent,
}
"""Event types whose JSON holds exactly the fields of the event class."""

SHOWN_MESSAGE_ID = """
    case
        when e.type in ('message.completed', 'tool.result', 'run.waiting') then cast(e.data ->> 'message_id' as uuid)
        when e.type in ('run.completed', 'run.failed', 'run.cancelled') then (
            select m.id from messages m where m.run_id = e.run_id and m.step = 'answer')
    end"""
"""SQL expression over `run_events e`: the id of the message that the event contains, null if it contains none."""

RUN_EVENT_TYPES = "('run.started', 'run.waiting', 'run.completed', 'run.failed', 'run.cancelled')"
"""SQL list of the event types that contain their run."""

SHOWN_COLUMNS = f"{prefixed(MESSAGE_COLUMNS, 'm', 'shown_')}, {prefixed(RUN_COLUMNS, 'r', 'run_')}"


NEW_EVENTS = "unnest(cast(:seqs as integer[]), cast(:types as text[]), cast(:data as text[])) as e (seq, type, data)"
"""SQL row source with one row per event, made from the parameters that `event_parameters` returns."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event in its stored form."""

    type: EventType
    data: JsonObject


def as_stored(event: Event) -> StoredEvent:
    """Return the stored form of an event."""
    return StoredEvent(event.type, _stored(event))


def stored_ending(status: RunStatus, answer_id: MessageId | None) -> tuple[StoredEvent, ...]:
    """Return the stored form of a run's closing events: the answer, if there is one, and the end.

    It is used before the end and the answer are stored, and equals that of `ending(run, answer)`.
    """
    ended = StoredEvent(end_type(status), {})
    return (ended,) if answer_id is None else (StoredEvent(EventType.MESSAGE_COMPLETED, _pointing_at(answer_id)), ended)


def stored_wait(wait: NewWait) -> StoredEvent:
    """Return the stored form of the event that says that a run waits.

    The calls themselves are read from its message; questions of tools' servers are stored here.

    It equals that of `RunWaiting`, and is used before the wait is stored.
    """
    kinds: dict[str, JsonValue] = {awaited.call.id: awaited.kind.value for awaited in wait.calls}
    questions: dict[str, JsonValue] = {
        one.id: {"server": one.server, "arguments": one.arguments} for one in wait.calls if one.server is not None
    }
    data: JsonObject = {
        "message_id": str(wait.message_id),
        "kinds": kinds,
        "until": wait.until.isoformat(),
        **({"questions": questions} if questions else {}),
    }
    return StoredEvent(EventType.RUN_WAITING, data)


def event_parameters(seqs: Sequence[int], events: Sequence[StoredEvent]) -> dict[str, object]:
    """Return the parameters `seqs`, `types` and `data` for inserting events: lists with one item per event."""
    return {
        "seqs": list(seqs),
        "types": [event.type.value for event in events],
        "data": [to_json(event.data) for event in events],
    }


def event_from(row: Row) -> Event | None:
    """Return the event in a row with `type`, `data` and SHOWN_COLUMNS.

    Return None if it is about one message that was erased, or if only a newer version knows its type or its compaction
    outcome. Return None also for a part of a message that an earlier version stored without the message's id.
    """
    if row["type"] not in KNOWN_TYPES:
        return None
    kind, data = EventType(row["type"]), row["data"]
    if kind in STORED_FIELD_BY_FIELD:
        return STORED_FIELD_BY_FIELD[kind](**data)
    match kind:
        case EventType.COMPACTION_FINISHED:
            return _compaction_finished(data)
        case EventType.REASONING_DELTA | EventType.MESSAGE_DELTA | EventType.TOOL_CALL_DELTA | EventType.TOOL_CALL:
            return _part_of_message(kind, data)
        case EventType.MESSAGE_COMPLETED | EventType.TOOL_RESULT | EventType.RUN_WAITING:
            return _about_message(kind, data, row)
        case _:
            return _about_run(kind, data, row)


def _stored(event: Event) -> JsonObject:
    match event:
        case MessageCompleted(message=message) | ToolAnswered(message=message):
            return _pointing_at(message.id)
        case RunStarted(run=run):
            started_at = None if run.started_at is None else run.started_at.isoformat()
            return {"attempt": run.attempt, "started_at": started_at, "cancel_requested": run.cancel_requested}
        case RunWaiting(run=Run(wait=Wait() as wait), message_id=message_id):
            return stored_wait(NewWait(wait.calls, message_id, wait.until)).data
        case RunEnded():
            return {}
        case MessageDelta() | ReasoningDelta() | ToolCallDelta() | ToolCalled():
            return _stored_part(event)
        case _:
            return asdict(event)


def _stored_part(part: MessageDelta | ReasoningDelta | ToolCallDelta | ToolCalled) -> JsonObject:
    fields = asdict(part.call) if isinstance(part, ToolCalled) else asdict(part)
    return {**fields, **_pointing_at(part.message_id)}


def _pointing_at(message_id: MessageId) -> JsonObject:
    return {"message_id": str(message_id)}


def _compaction_finished(data: Stored) -> CompactionFinished | None:
    if data["outcome"] not in tuple(CompactionOutcome):
        return None
    outcome, fired = CompactionOutcome(data["outcome"]), tuple(data["fired"])
    return CompactionFinished(**{**data, "outcome": outcome, "fired": fired})


def _part_of_message(kind: EventType, data: Stored) -> Event | None:
    if "message_id" not in data:
        return None
    message_id = MessageId(UUID(data["message_id"]))
    match kind:
        case EventType.REASONING_DELTA:
            return ReasoningDelta(message_id, data["text"])
        case EventType.TOOL_CALL_DELTA:
            return ToolCallDelta(message_id, data["index"], data["call_id"], data["name"], data["arguments_delta"])
        case EventType.TOOL_CALL:
            return ToolCalled(ToolCall(data["id"], data["name"], data["arguments"]), message_id)
        case _:
            return MessageDelta(message_id, data["text"])


def _about_message(kind: EventType, data: Stored, row: Row) -> Event | None:
    if row["shown_id"] is None:
        return None
    message = message_from(row, "shown_")
    if kind is EventType.RUN_WAITING:
        return RunWaiting(_as_waiting(run_from(row, "run_"), message, data), message.id)
    return ToolAnswered(message) if kind is EventType.TOOL_RESULT else MessageCompleted(message)


def _about_run(kind: EventType, data: Stored, row: Row) -> Event:
    answer = None if row["shown_id"] is None else message_from(row, "shown_")
    run = run_from(row, "run_")
    return RunStarted(_as_started(run, data)) if kind is EventType.RUN_STARTED else RunEnded(run, answer)


def _as_waiting(run: Run, message: Message, data: Stored) -> Run:
    """Return the run as it was when it began to wait for calls of `message`, since its row holds the current state."""
    questions = (
        AwaitedCall(ToolCall(call_id, ASK_USER, one["arguments"]), WaitKind.ANSWER, server=one["server"])
        for call_id, one in data.get("questions", {}).items()
    )
    calls = (*awaited(message.tool_calls, data["kinds"]), *questions)
    wait = Wait(calls, datetime.fromisoformat(data["until"]), fence=0)
    return replace(
        run, status=RunStatus.WAITING, wait=wait, error=None, message_id=None, context=None, finished_at=None
    )


def _as_started(run: Run, data: Stored) -> Run:
    """Return the run as it was at the start of the attempt, since its row holds the current state."""
    started_at = data["started_at"]
    return replace(
        run,
        status=RunStatus.RUNNING,
        attempt=data["attempt"],
        started_at=None if started_at is None else datetime.fromisoformat(started_at),
        cancel_requested=data["cancel_requested"],
        usage=Usage(),
        error=None,
        message_id=None,
        context=None,
        finished_at=None,
        wait=None,
    )


_STORE = sql(
    """
    insert into run_events (run_id, seq, type, data)
    select :run_id, e.seq, e.type, cast(e.data as json) from {rows}
    on conflict (run_id, seq) do nothing
""",
    rows=NEW_EVENTS,
)
_STORE_HELD_TEXT = """
    with asked as (
        select a.run_id, a.fence from unnest(cast(:run_ids as uuid[]), cast(:fences as integer[])) as a (run_id, fence)
    ), held as (
        select r.id from asked a join runs r on r.id = a.run_id and r.fence = a.fence
        where r.status = 'running' for share of r {skip_locked}
    ), hurried as materialized (
        select held.id, set_config('synchronous_commit', 'off', true) from held
    ), written as (
        insert into run_events (run_id, seq, type, data)
        select hurried.id, e.seq, e.type, cast(e.data as json) from hurried join (
            select unnest(cast(:event_runs as uuid[])) as run_id, unnest(cast(:seqs as integer[])) as seq,
                unnest(cast(:types as text[])) as type, unnest(cast(:data as text[])) as data
        ) e on e.run_id = hurried.id
        on conflict (run_id, seq) do nothing
    )
    select a.run_id, hurried.id is not null as is_stored, exists (
        select 1 from runs r where r.id = a.run_id and r.fence = a.fence and r.status = 'running') as is_held
    from asked a left join hurried on hurried.id = a.run_id
"""
_STORE_HELD = sql(_STORE_HELD_TEXT, skip_locked="")
_STORE_UNLOCKED = sql(_STORE_HELD_TEXT, skip_locked="skip locked")
_READ = sql(
    """
    with asked as (
        select e.seq, e.type, e.data, {shown_message_id} as shown_id from run_events e
        where e.run_id = :run_id and e.seq > :after_seq order by e.seq limit :limit
    ), measured as (
        select asked.*, octet_length(cast(asked.data as text))
            + coalesce(octet_length(m.content), octet_length(cast(m.content_blocks as text)), 0)
            + coalesce(octet_length(cast(m.tool_calls as text)), 0)
            + coalesce(octet_length(cast(r.input as text)), 0) as bytes
        from asked left join messages m on m.id = asked.shown_id
            left join runs r on r.id = :run_id and asked.type in {run_event_types}
    ), counted as (
        select measured.*, sum(bytes) over (order by seq) - bytes as bytes_before from measured
    )
    select counted.seq, counted.type, counted.data, m.id as run_message_id, {shown_columns},
        {user_message_id} as run_user_message_id,
        exists (select 1 from message_pins p where p.session_id = m.session_id and p.message_id = m.id) as pinned
    from counted left join messages m on m.id = counted.shown_id
        left join runs r on r.id = :run_id and counted.type in {run_event_types}
    where counted.bytes_before < :max_bytes order by counted.seq
""",
    shown_message_id=SHOWN_MESSAGE_ID,
    shown_columns=SHOWN_COLUMNS,
    user_message_id=USER_MESSAGE_ID,
    run_event_types=RUN_EVENT_TYPES,
)
_NEXT = sql("""
    select r.id, coalesce(
        (select max(e.seq) + 1 from run_events e where e.run_id = r.id),
        greatest(3 * r.fence - :strides_back, 0) * :stride + 1
    ) as seq
    from runs r where r.id = any(cast(:run_ids as uuid[]))
""")
_NEWEST_QUOTED = sql("""
    select distinct on (e.type) e.type, e.data from run_events e
    where e.run_id = (
            select m.run_id from messages m where m.session_id = :session_id order by m.position desc limit 1)
        and e.type = any(:types)
    order by e.type, e.seq desc
""")
_COMPACTIONS = sql("""
    with newest as (
        select r.id from runs r
        where r.session_id = :session_id and r.owner_id = :owner_id order by r.seq desc limit :runs
    )
    select e.data, e.created_at from newest join run_events e on e.run_id = newest.id
    where e.type = 'context.compaction.finished' order by e.created_at desc, e.seq desc limit :limit
""")

COMPACTION_RUNS = 100
"""Newest runs of a session whose events are searched for compactions: each may have hundreds of events."""

STRIDE = 100_000
"""Step between the event numbers of a run's holder, of the reset and the end behind its lease, and of the next holder.

The event table is unlogged, so a server crash empties it, and on a promoted standby it begins empty. A run without
stored events is therefore numbered on beyond all that its earlier holders may have shown to readers: each writes fewer
events than this. Its first holder begins at 1.
"""

PAGE_BYTES = 8_000_000
"""Size limit of a page of events; the page ends with the event that reaches it."""


class EventRepository:
    """Storage of run events; implements the interface EventStore (ports/storage.py), and reads events for readers."""

    def __init__(self, transactions: Transactions, notifier: Notifier) -> None:
        """Use `transactions`, and notify readers through `notifier`."""
        self._transactions = transactions
        self._notifier = notifier
        self._joined = JoinedEvents(self._store)

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        if not events:
            return
        if await self._joined.store(EventBatch(lease, events)) is not StoreResult.STORED:
            raise lease_lost(lease)
        self._notifier.announce_events(lease.run_id, events)

    async def _store(self, batches: Collection[EventBatch], *, waits: bool) -> Mapping[Lease, StoreResult]:
        rows = await self._transactions.fetch(
            _STORE_HELD if waits else _STORE_UNLOCKED,
            run_ids=[batch.lease.run_id for batch in batches],
            fences=[batch.lease.fence for batch in batches],
            event_runs=[batch.lease.run_id for batch in batches for _ in batch.events],
            **_parameters([event for batch in batches for event in batch.events]),
        )
        results = {row["run_id"]: _result(row, waits=waits) for row in rows}
        return {batch.lease: results[batch.lease.run_id] for batch in batches}

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return the stored events after number `after_seq` in order: up to `limit`, fewer if they are large.

        Events about an erased message are left out.
        """
        rows = await self._transactions.fetch(
            _READ, run_id=run_id, after_seq=after_seq, limit=limit, max_bytes=PAGE_BYTES
        )
        read = ((row["seq"], event_from(row)) for row in rows)
        return tuple(RunEvent(run_id, seq, event) for seq, event in read if event is not None)

    async def newest_quoted(self, session_id: SessionId) -> tuple[HistoryQuoted | None, MemoriesQuoted | None]:
        types = [EventType.HISTORY_QUOTED.value, EventType.MEMORIES_QUOTED.value]
        rows = await self._transactions.fetch(_NEWEST_QUOTED, session_id=session_id, types=types)
        history, memories = ([row["data"] for row in rows if row["type"] == kind] for kind in types)
        return (
            HistoryQuoted(**history[0]) if history else None,
            MemoriesQuoted(**memories[0]) if memories else None,
        )

    async def newest_compactions(
        self, owner_id: UserId, session_id: SessionId, limit: int = 20
    ) -> tuple[tuple[datetime, CompactionFinished], ...]:
        """Return the compactions in the session's newest runs, the last one first, each with its time.

        Empty for a session that the owner does not have. Events that were deleted are missing.
        """
        asked = {"owner_id": owner_id, "session_id": session_id, "runs": COMPACTION_RUNS, "limit": limit}
        rows = await self._transactions.fetch(_COMPACTIONS, **asked)
        read = ((row["created_at"], _compaction_finished(row["data"])) for row in rows)
        return tuple((time, event) for time, event in read if event is not None)


async def store_events(tx: Statements, run_id: RunId, events: Sequence[NewEvent]) -> None:
    """Store events in a transaction that has already locked the run's row, so that no fence check is needed."""
    if events:
        await tx.fetch(_STORE, run_id=run_id, **_parameters(events))


def _result(row: Row, *, waits: bool) -> StoreResult:
    if row["is_stored"]:
        return StoreResult.STORED
    return StoreResult.LOCKED if row["is_held"] and not waits else StoreResult.LOST


def _parameters(events: Sequence[NewEvent]) -> dict[str, object]:
    return event_parameters([new.seq for new in events], [as_stored(new.event) for new in events])


async def first_event_numbers(tx: Statements, run_ids: Collection[RunId]) -> Mapping[RunId, int]:
    """Return the first event number for the new holder of each run, beyond all that readers have seen (STRIDE)."""
    return await _next(tx, run_ids, strides_back=3)


async def reset_event_number(tx: Statements, run_id: RunId) -> int:
    """Return the event number of the reset behind the run's holder, beyond all that readers have seen (STRIDE)."""
    return (await _next(tx, [run_id], strides_back=2))[run_id]


async def end_event_number(tx: Statements, run_id: RunId) -> int:
    """Return the first event number for the end of a run that nobody holds, beyond all that readers have seen (STRIDE).

    It is 1 if the run was never held.
    """
    return (await _next(tx, [run_id], strides_back=1))[run_id]


async def _next(tx: Statements, run_ids: Collection[RunId], *, strides_back: int) -> Mapping[RunId, int]:
    asked = {"run_ids": list(run_ids), "stride": STRIDE, "strides_back": strides_back}
    rows = await tx.fetch(_NEXT, **asked) if run_ids else ()
    return {RunId(row["id"]): int(row["seq"]) for row in rows}
