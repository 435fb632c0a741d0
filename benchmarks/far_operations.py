"""What operations other than turns take in a small and in a large database, for `benchmarks.far`.

Each runs in this process, on one connection, in both databases alternately. Maintenance runs once, in the same way; it
deletes rows, so it comes last.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types

from benchmarks.far_data import OWNER
from benchmarks.figures import connected
from fakes.programs import find_dump_programs
from throughline.db.database import Database, DatabaseConfig
from throughline.db.retention import FIRST_ID
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.recall import HistoryQuery
from throughline.domain.run import Claimer
from throughline.domain.usage_report import UsageKey, UsageQuery
from throughline.turn.worker.retention import HOURS_PER_DAY, RetentionConfig

QUESTIONS = ("who decided on the remote control", "budget for the next year", "design of the market research")
REPEATS, WARM_UP = 50, 10
"""A connection keeps a plan from the sixth execution on."""

_QUEUE = """
    insert into runs (id, session_id, owner_id, agent, status, input, source)
    select gen_random_uuid(), s.id, s.owner_id, s.agent, 'queued', '{"content": "Hello", "metadata": {}}', 'api'
    from sessions s where s.owner_id in (select id from users order by id limit 2);
    analyze runs;
"""
_QUEUE_AGAIN = """
    update runs set status = 'queued', lease_until = null, claim_id = null, worker = null, started_at = null
    where status = 'running'
"""
_SIZES = """
    select coalesce(coalesce(i.inhparent, c.oid)::regclass::text, 'together') as name,
        round(sum(pg_table_size(c.oid)) / 1e9, 2)::text, round(sum(pg_indexes_size(c.oid)) / 1e9, 2)::text,
        round(sum(pg_total_relation_size(c.oid)) / (select sum(message_count) from sessions))::text
    from pg_class c left join pg_inherits i on i.inhrelid = c.oid where c.relkind = 'r'
        and c.relnamespace = 'public'::regnamespace
    group by rollup (coalesce(i.inhparent, c.oid)) order by sum(pg_total_relation_size(c.oid)) desc limit 6
"""


@dataclass
class Target:
    """One database: its repositories on one connection, another connection, an owner and the owner's sessions."""

    database: Database
    connection: asyncpg.Connection
    owner_id: UserId
    sessions: Sequence[SessionId]

    @classmethod
    async def open(cls, stack: AsyncExitStack, url: str) -> "Target":
        """Open the database until the stack ends."""
        database = await Database.open(DatabaseConfig(url=url, pool_size=1))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        owner_id = await database.users.get_or_create(OWNER)
        rows = await connection.fetch("select id from sessions where owner_id = $1 order by id", owner_id)
        return cls(database, connection, owner_id, [row["id"] for row in rows])

    def search(self, number: int, session: SessionId | None) -> Awaitable[object]:
        """Search for a question."""
        query = HistoryQuery(QUESTIONS[number % len(QUESTIONS)], limit=10)
        return self.database.history.search(self.owner_id, session, query)

    def costs(self, owner_id: UserId | None, key: UsageKey) -> Awaitable[object]:
        """Report the costs of thirty days."""
        now = datetime.now(UTC)
        return self.database.usage.report(UsageQuery(owner_id, now - timedelta(days=30), now, (key,)))

    async def delete_unused_summaries(self) -> None:
        """Delete all of them, batch after batch without pauses."""
        for kind in ("prepared", "segments"):
            last, hours = FIRST_ID, RetentionConfig().unused_summaries_days * HOURS_PER_DAY
            while (found := await self.database.retention.delete(kind, hours, last)).last is not None:
                last = found.last


Operation = Callable[[Target, int], Awaitable[object]]
CLAIM = "claim 16 of 100 queued turns"
OPERATIONS: Mapping[str, Operation] = {
    "list sessions": lambda t, _: t.database.sessions.list(t.owner_id, SessionQuery(limit=20)),
    "list 50 messages": lambda t, n: t.database.messages.list_messages(
        t.owner_id, t.sessions[n % len(t.sessions)], MessageQuery(limit=50, order="desc")
    ),
    "load a session for a turn": lambda t, n: t.database.messages.load_context(
        t.sessions[n % len(t.sessions)], None, 100_000
    ),
    "search one session": lambda t, n: t.search(n, t.sessions[n % len(t.sessions)]),
    "search all sessions of an owner": lambda t, n: t.search(n, None),
    CLAIM: lambda t, _: t.database.runs.claim(Claimer(worker="far", lease_seconds=60, most=16)),
    "costs of an owner in 30 days": lambda t, _: t.costs(t.owner_id, UsageKey.DAY),
    "costs of all owners in 30 days": lambda t, _: t.costs(None, UsageKey.MODEL),
}
MAINTENANCE: Mapping[str, Operation] = {
    "vacuum after the turns": lambda t, _: t.connection.execute("vacuum"),
    "drop the events of a day": lambda t, _: t.database.retention.partitions[0].drop_expired(
        RetentionConfig().run_events_hours
    ),
    "delete unused summaries": lambda t, _: t.delete_unused_summaries(),
    "erase a session": lambda t, _: t.database.sessions.delete(t.owner_id, t.sessions[0]),
}


async def measure(urls: Sequence[str]) -> list[Sequence[str]]:
    """Return the lines of the table in milliseconds, the headings first."""
    async with AsyncExitStack() as stack:
        targets = [await Target.open(stack, url) for url in urls]
        for target in targets:
            await target.connection.execute(_QUEUE)
        lines = [await _compare(name, one, targets, WARM_UP + REPEATS) for name, one in OPERATIONS.items()]
        for target in targets:
            await target.connection.execute("delete from runs where status = 'queued'")
        lines += [await _compare(name, one, targets, 1) for name, one in MAINTENANCE.items()]
    return [("operation", "small ms", "large ms", "quotient"), *lines]


async def _compare(name: str, operation: Operation, targets: Sequence[Target], repeats: int) -> Sequence[str]:
    walls: list[list[float]] = [[] for _ in targets]
    for number in range(repeats):
        for target, taken in zip(targets, walls, strict=True):
            began = time.perf_counter()
            await operation(target, number)
            taken.append(time.perf_counter() - began)
            if name == CLAIM:
                await target.connection.execute(_QUEUE_AGAIN)
    small, large = (1000 * statistics.median(taken[WARM_UP:] or taken) for taken in walls)
    return (name, f"{small:,.1f}", f"{large:,.1f}", f"{large / small:.2f}")


async def measure_sizes(url: str) -> list[Sequence[str]]:
    """Return the lines of a table with the sum and the largest tables, the headings first."""
    async with connected(url) as connection:
        lines = [tuple(row) for row in await connection.fetch(_SIZES)]
    return [("table", "GB", "GB of indexes", "bytes a message"), *lines]


async def measure_backup(url: str, restored_url: str, folder: Path) -> list[Sequence[str]]:
    """Return the lines of a table for a dump and its restoration into an empty database, the headings first."""
    programs, file = await find_dump_programs(url), folder / "dump"
    assert programs is not None, "pg_dump is missing, or older than the server"
    began = time.monotonic()
    await programs.dump(url, file)
    dumped = time.monotonic()
    await programs.restore(file, restored_url)
    restored, size = time.monotonic(), file.stat().st_size
    file.unlink()
    made = ("pg_dump", f"{dumped - began:,.0f}", f"{size / 1e9:.2f}")
    return [("backup", "seconds", "GB"), made, ("pg_restore", f"{restored - dumped:,.0f}", "")]
