"""How long a search takes in sessions of several sizes, and what storing and indexing a message costs."""

import statistics
import time
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.retrieval_data import Meeting, chained
from benchmarks.retrieval_rows import fill_session, index_all
from throughline.db.database import Database
from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.recall import HistoryQuery
from throughline.domain.run import Claimer, RunInput
from throughline.domain.submission import OnBusy, Submission

QUERIES = 200
WARM_UP = 10
APPENDED = 2_000


async def measure_speed(
    database: Database,
    connection: asyncpg.Connection,
    meetings: Sequence[Meeting],
    *,
    sizes: Sequence[int],
    questions: Sequence[str],
) -> str:
    """Return a Markdown table: for each size the median and 99th percentile of a search for ten messages."""
    lines = ["", "| messages in the session | median ms | p99 ms |", "|---:|---:|---:|"]
    for size in sizes:
        owner_id = await database.users.get_or_create(f"speed-{size}")
        session_id = await fill_session(database, connection, owner_id, chained(meetings, size))
        await index_all(database, session_id)
        await connection.execute("vacuum (analyze) search_terms, search_blocks, messages")
        walls = await _search(database, owner_id, session_id, questions)
        lines.append(f"| {size:,} | {_milliseconds(walls, 50):.1f} | {_milliseconds(walls, 99):.1f} |")
    return "\n".join(lines)


async def measure_cost(database: Database, connection: asyncpg.Connection, meetings: Sequence[Meeting]) -> str:
    """Return a Markdown table: what a turn pays for a message, and what indexing costs beside the turns."""
    owner_id = await database.users.get_or_create("cost")
    session_id = await fill_session(database, connection, owner_id, ())
    lines = list(chained(meetings, APPENDED))
    messages = [NewMessage(Role.USER, line.text, Source.API, author=line.speaker) for line in lines]
    wal, began = await _wal(connection), time.perf_counter()
    await _append(database, owner_id, session_id, messages)
    stored_seconds, stored_wal = time.perf_counter() - began, await _wal(connection) - wal
    wal, began = await _wal(connection), time.perf_counter()
    await index_all(database, session_id)
    indexed_seconds, indexed_wal = time.perf_counter() - began, await _wal(connection) - wal
    size = statistics.fmean(len(line.text) for line in lines)
    return "\n".join([
        "",
        f"| {APPENDED:,} messages of {size:.0f} characters | µs a message | WAL bytes a message |",
        "|---|---:|---:|",
        f"| stored by a turn | {1e6 * stored_seconds / APPENDED:,.0f} | {stored_wal / APPENDED:,.0f} |",
        f"| indexed beside the turns | {1e6 * indexed_seconds / APPENDED:,.0f} | {indexed_wal / APPENDED:,.0f} |",
    ])


async def _search(database: Database, owner_id: UserId, session_id: SessionId, questions: Sequence[str]) -> list[float]:
    walls = []
    asked = [questions[number % len(questions)] for number in range(WARM_UP + QUERIES)]
    for question in asked:
        began = time.perf_counter()
        await database.history.search(owner_id, session_id, HistoryQuery(question, limit=10))
        walls.append(time.perf_counter() - began)
    return walls[WARM_UP:]


async def _append(database: Database, owner_id: UserId, session_id: SessionId, messages: Sequence[NewMessage]) -> None:
    submission = Submission(
        owner_id=owner_id,
        session_id=session_id,
        input=RunInput("begin"),
        source=Source.API,
        idempotency_key=None,
        fingerprint="",
        on_busy=OnBusy.ENQUEUE,
    )
    submitted = await database.runs.submit(submission, Claimer("benchmark", lease_seconds=600))
    assert submitted.claimed is not None
    for number, message in enumerate(messages):
        await database.messages.append_message(submitted.claimed.lease, f"step:{number}", message)


def _milliseconds(walls: Sequence[float], percent: int) -> float:
    return 1000 * statistics.quantiles(walls, n=100, method="inclusive")[percent - 1]


async def _wal(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
