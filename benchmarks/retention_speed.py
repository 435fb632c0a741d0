"""What it costs to delete a day of run events: row by row, as without partitions, and by dropping its partition.

`python -m benchmarks.retention_speed --rows 10000000` fills a day with events of ended runs, for each way once.
Meanwhile a writer stores events of runs of today and reads them back, and the locks of the service are watched.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # ships no types

from benchmarks.figures import aligned, connected, wal_position
from benchmarks.processes import run_postgres
from throughline.db.connection.address import parse_address
from throughline.db.connection.migrations import downgrade, upgrade
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.partitions import partitions_of_runs
from throughline.db.retention import FIRST_ID, RUNS_AT_ONCE, delete_events
from throughline.db.statements.sql import new_id
from throughline.db.tables.runs import RUN_EVENTS
from throughline.domain.message import Source
from throughline.domain.session import NewSession

UNPARTITIONED = "0047"
"""The schema revision in which run_events is one table."""

EVENTS_PER_RUN = 50
EVENTS_AT_ONCE = 5
BATCHES_PER_RUN = 20
RUNS_PER_STATEMENT = 10_000
WATCH_SECONDS = 0.001
PAUSE_SECONDS = 0.05
"""Pause between two batches of deletions, as in turn/worker/retention.py."""

HOURS = 24
AGE = timedelta(days=3)
DELTA = '{"message_id": "01900000-0000-7000-8000-000000000000", "text": "some words of an answer"}'
HEADINGS = (
    "way",
    "seconds",
    "without pauses",
    "WAL bytes",
    "vacuum s",
    "MB left",
    "strongest lock",
    "writers locked out ms",
    "insert median ms",
    "longest",
    "read median ms",
    "longest",
)

_RUN_ID = "cast(lpad(to_hex(cast($1 as bigint) + n * 100), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0') as uuid)"
_FILL_RUNS = f"""
    insert into runs (id, session_id, owner_id, agent, status, input, source, started_at, finished_at)
    select {_RUN_ID}, $4, $5, 'assistant', 'succeeded', '{{"content": "hello", "metadata": {{}}}}', 'api',
        now() - interval '2 days', now() - interval '2 days'
    from generate_series(cast($2 as integer), cast($3 as integer)) n
    on conflict (id) do nothing
"""
_FILL_EVENTS = f"""
    insert into run_events (run_id, seq, type, data)
    select {_RUN_ID}, seq, 'message.delta', cast(cast($4 as text) as json)
    from generate_series(cast($2 as integer), cast($3 as integer)) n, generate_series(1, {EVENTS_PER_RUN}) seq
"""
_INSERT = """
    insert into run_events (run_id, seq, type, data)
    select $1, seq, 'message.delta', cast(cast($4 as text) as json)
    from generate_series(cast($2 as integer), cast($3 as integer)) seq
    on conflict (run_id, seq) do nothing
"""
_READ = "select seq, type, data from run_events where run_id = $1 and seq > $2 order by seq limit 100"
_LOCKS = """
    select distinct l.mode from pg_locks l join pg_class c on c.oid = l.relation
        join pg_stat_activity a on a.pid = l.pid
    where c.relname = any(cast($1 as text[])) and a.application_name = 'throughline'
"""
_SIZE = (
    "select sum(pg_total_relation_size(oid)) / 1e6 from pg_class where relname like 'run\\_events%' and relkind = 'r'"
)
STRENGTHS = (
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)
"""Modes of locks on tables, from the weakest."""

LOCKS_WRITERS_OUT = frozenset(STRENGTHS[STRENGTHS.index("ShareLock") :])


@dataclass
class Watched:
    """What was seen of one way of deleting, in seconds: what it took, its locks, and the writer beside it.

    `locked_out` is the longest time for which a lock that keeps writers out was held or waited for.
    """

    seconds: float = 0.0
    without_pauses: float = 0.0
    wal_bytes: int = 0
    vacuum: float = 0.0
    mb_left: float = 0.0
    modes: set[str] = field(default_factory=set)
    locked_out: float = 0.0
    inserts: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the figures below HEADINGS, but the way's name."""
        return [
            f"{self.seconds:,.2f}",
            f"{self.without_pauses:,.2f}",
            f"{self.wal_bytes:,}",
            f"{self.vacuum:,.2f}",
            f"{self.mb_left:,.0f}",
            max(self.modes, key=STRENGTHS.index, default="none seen"),
            f"{1000 * self.locked_out:,.0f}",
            *(
                f"{1000 * figure:,.2f}"
                for walls in (self.inserts, self.reads)
                for figure in (statistics.median(walls), max(walls))
            ),
        ]


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="events of the day that is deleted")
    rows = parser.parse_args(arguments).rows
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retention-speed-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        table = [list(HEADINGS)]
        await upgrade(url)
        await _make_session(url)
        for way, prepare, delete in (("rows", _as_one_table, _delete_rows), ("partition", _in_partitions, _drop)):
            await prepare(url)
            table.append([way, *(await measure(url, rows, delete)).cells()])
            print(aligned([list(HEADINGS), table[-1]]), flush=True)
        print(f"\n{rows:,} events of {rows // EVENTS_PER_RUN:,} runs\n\n{aligned(table)}")
    return 0


async def measure(url: str, rows: int, delete: Callable[[Transactions], Awaitable[float]]) -> Watched:
    """Fill a day, delete it beside a writer, and return what was seen. `delete` returns its seconds without pauses."""
    watched = Watched()
    pool = ConnectionPool(parse_address(url), PoolConfig(1, 5.0))
    async with connected(url) as connection:
        await _fill(connection, rows)
        async with _beside(url, watched):
            wal, began = await wal_position(connection), time.perf_counter()
            watched.without_pauses = await delete(Transactions(pool))
            watched.seconds = time.perf_counter() - began
            watched.wal_bytes = await wal_position(connection) - wal
        began = time.perf_counter()
        await connection.execute("vacuum run_events")
        watched.vacuum = time.perf_counter() - began
        watched.mb_left = float(await connection.fetchval(_SIZE))
    await pool.close()
    return watched


async def _as_one_table(url: str) -> None:
    """Make run_events one table, as before partitions."""
    await downgrade(url, UNPARTITIONED)


async def _in_partitions(url: str) -> None:
    """Empty the table, and make its partitions and that of the day."""
    async with connected(url) as connection:
        await connection.execute("truncate run_events")
    await upgrade(url)
    async with connected(url) as connection:
        for statement in RUN_EVENTS.create(_day()):
            await connection.execute(statement)


async def _delete_rows(transactions: Transactions) -> float:
    """Delete batch after batch, with the pauses of the retention job but without its limit of ten minutes."""
    statement, after, busy = delete_events(RUN_EVENTS.table), FIRST_ID, 0.0
    while True:
        began = time.perf_counter()
        (row,) = await transactions.fetch(statement, hours=HOURS, after=after, rows=RUNS_AT_ONCE)
        busy += time.perf_counter() - began
        if row["looked_at"] < RUNS_AT_ONCE:
            return busy
        after = row["last_id"]
        await asyncio.sleep(PAUSE_SECONDS)


async def _drop(transactions: Transactions) -> float:
    began = time.perf_counter()
    dropped = await partitions_of_runs(transactions).drop_expired(HOURS)
    assert dropped.count == 1, dropped
    return time.perf_counter() - began


async def _make_session(url: str) -> None:
    database = await Database.open(DatabaseConfig(url=url, pool_size=1))
    owner_id = await database.users.get_or_create("many-events")
    await database.sessions.create(NewSession(owner_id, "assistant", title="", source=Source.API, metadata={}))
    await database.close()


async def _fill(connection: asyncpg.Connection, rows: int) -> None:
    """Store ended runs of the day in the one session, unless they are there, and their events."""
    session = await connection.fetchrow("select id, owner_id from sessions")
    first, runs = int(_day().timestamp() * 1000), rows // EVENTS_PER_RUN
    for start in range(1, runs + 1, RUNS_PER_STATEMENT):
        end = min(start + RUNS_PER_STATEMENT - 1, runs)
        await connection.execute(_FILL_RUNS, first, start, end, *session)
        await connection.execute(_FILL_EVENTS, first, start, end, DELTA)
    await connection.execute("vacuum (analyze) runs, run_events")


def _day() -> datetime:
    return RUN_EVENTS.period.start(datetime.now(UTC) - AGE)


@asynccontextmanager
async def _beside(url: str, watched: Watched) -> AsyncGenerator[None]:
    """Write, read and watch until the block ends."""
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_write(url, watched, is_over))
        group.create_task(_watch(url, watched, is_over))
        await asyncio.sleep(1)
        yield
        await asyncio.sleep(1)
        is_over.set()


async def _write(url: str, watched: Watched, is_over: asyncio.Event) -> None:
    """Store batches of events of one run after another, and read each batch back."""
    async with connected(url) as connection:
        insert, read = await connection.prepare(_INSERT), await connection.prepare(_READ)
        while not is_over.is_set():
            run_id: UUID = new_id()
            for seq in range(1, BATCHES_PER_RUN * EVENTS_AT_ONCE, EVENTS_AT_ONCE):
                began = time.perf_counter()
                await insert.fetch(run_id, seq, seq + EVENTS_AT_ONCE - 1, DELTA)
                stored = time.perf_counter()
                assert len(await read.fetch(run_id, seq - 1)) == EVENTS_AT_ONCE
                watched.inserts.append(stored - began)
                watched.reads.append(time.perf_counter() - stored)
                await asyncio.sleep(0)


async def _watch(url: str, watched: Watched, is_over: asyncio.Event) -> None:
    """Look again and again which locks the service holds or waits for, on the table and where today's events are."""
    today = f"{RUN_EVENTS.table}_{datetime.now(UTC):{RUN_EVENTS.period.value}}"
    tables = [RUN_EVENTS.table, RUN_EVENTS.default, today]
    since: float | None = None
    async with connected(url) as connection:
        look = await connection.prepare(_LOCKS)
        while not is_over.is_set():
            asked = time.perf_counter()
            modes = {row["mode"] for row in await look.fetch(tables)}
            watched.modes |= modes
            since = (asked if since is None else since) if modes & LOCKS_WRITERS_OUT else None
            if since is not None:
                watched.locked_out = max(watched.locked_out, time.perf_counter() - since)
            await asyncio.sleep(WATCH_SECONDS)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
