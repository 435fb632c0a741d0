"""What the database holds at the end, read with plain SQL: none of the service's own reading code is trusted here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import parse_address


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session. `through_position` is its cursor."""

    id: str
    message_count: int
    through_position: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message. `calls` are the ids of its tool calls, `answers` the id of the call it is the result of."""

    id: str
    session_id: str
    position: int
    role: str
    content: str
    run_id: str
    calls: tuple[str, ...] = ()
    answers: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run. `seq` is its place in the order of acceptance; the error is empty for one that did not fail."""

    id: str
    session_id: str
    seq: int
    status: str
    attempt: int
    key: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of a run."""

    run_id: str
    seq: int
    type: str
    data: Mapping[str, Any]  # whatever JSON the event holds


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A version of a session's summary. `segments` are first and last positions, in the version's order."""

    session_id: str
    state: str
    version: int | None
    through_position: int
    through_id_position: int | None
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A side job that is in line or in hand, or one that raised. `silent_seconds`: since its process gave a sign."""

    id: int
    kind: str
    status: str
    attempts: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything that is checked."""

    sessions: tuple[StoredSession, ...]
    messages: tuple[StoredMessage, ...]
    runs: tuple[StoredRun, ...]
    events: tuple[StoredEvent, ...] = ()
    summaries: tuple[StoredSummary, ...] = ()


_SESSIONS = "select id::text, message_count, summary_through_position as through_position from sessions"
_MESSAGES = """
    select id::text, session_id::text, position, role, coalesce(content, '') as content,
        coalesce(run_id::text, '') as run_id, tool_calls::text as calls, coalesce(tool_call_id, '') as answers
    from messages order by session_id, position
"""
_RUNS = """
    select id::text, session_id::text, seq, status, attempt, coalesce(idempotency_key, '') as key,
        coalesce(error_type, '') as error
    from runs order by seq
"""
_EVENTS = "select run_id::text, seq, type, data::text from run_events order by run_id, seq"
_SUMMARIES = """
    select v.session_id::text, v.state, v.version, v.through_position,
        (select m.position from messages m
            where m.id = v.through_id and m.session_id = v.session_id) as through_id_position,
        coalesce((select json_agg(json_build_array(s.from_position, s.through_position) order by o.nr)
            from unnest(v.segment_ids) with ordinality as o (id, nr) join summaries s on s.id = o.id), '[]')::text
            as segments
    from summary_versions v
"""

_JOBS = """
    select j.seq as id, j.kind, case when j.lease_until is null then 'queued' else 'picked' end as status,
        j.attempt as attempts, coalesce(extract(epoch from now() - j.lease_until)::float8 + 30, 0) as silent_seconds
    from jobs j
    union all
    select f.id, f.kind, 'exception', 0, 0.0 from failed_jobs f
    order by id
"""


async def read_stored(url: str, *, with_events: bool = True) -> Stored:
    """Return what the database at `url` holds."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), timeout=30)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _read(connection, with_events=with_events)
    finally:
        await connection.close()


async def read_jobs(url: str) -> tuple[StoredJob, ...]:
    """Return the side jobs that are not done, and those that raised."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), timeout=30)
    try:
        return tuple(StoredJob(**row) for row in await connection.fetch(_JOBS))
    finally:
        await connection.close()


async def count_open_runs(url: str) -> int:
    """Return how many runs have not ended."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), timeout=30)
    try:
        return int(await connection.fetchval("select count(*) from runs where status in ('queued', 'running')"))
    finally:
        await connection.close()


async def forget_calibration(url: str) -> None:
    """Forget what was learned of the model's counting, so that the next process learns it, and writes it, again."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), timeout=30)
    try:
        await connection.execute("delete from token_calibration")
    finally:
        await connection.close()


class Reading(Protocol):
    """What is needed of a connection; asyncpg ships no types."""

    async def fetch(self, query: str, /) -> Sequence[Mapping[str, Any]]:
        """Return the rows; what their columns hold is known by the writer of the query."""
        ...


async def _read(connection: Reading, *, with_events: bool) -> Stored:
    sessions = await connection.fetch(_SESSIONS)
    messages = await connection.fetch(_MESSAGES)
    runs = await connection.fetch(_RUNS)
    events = await connection.fetch(_EVENTS) if with_events else ()
    summaries = await connection.fetch(_SUMMARIES)
    return Stored(
        sessions=tuple(StoredSession(**row) for row in sessions),
        messages=tuple(StoredMessage(**{**row, "calls": _call_ids(row["calls"])}) for row in messages),
        runs=tuple(StoredRun(**row) for row in runs),
        events=tuple(StoredEvent(**{**row, "data": json.loads(row["data"])}) for row in events),
        summaries=tuple(StoredSummary(**{**row, "segments": _segments(row["segments"])}) for row in summaries),
    )


def _call_ids(written: str) -> tuple[str, ...]:
    return tuple(str(call["id"]) for call in json.loads(written))


def _segments(written: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in json.loads(written))
