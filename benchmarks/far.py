"""What ten million messages cost beside ten thousand: turns, other operations, maintenance, sizes, plans, a dump.

`PYTHONPATH=tests python -m benchmarks.far`. One embedded PostgreSQL has both databases, which SQL fills
(`benchmarks.far_data`) in the folder that `--folder` names. Another run finds them filled there. Exits with 1 if a turn
in the large database costs more than AIM times as much as in the small one.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import httpx

from benchmarks import far_operations
from benchmarks.far_data import AGENT, OWNER, fill
from benchmarks.far_plans import find_plans
from benchmarks.figures import aligned, connected, wal_position
from benchmarks.processes import run_double, run_service, write_agent
from benchmarks.statement_log import StatementLog, run_logged_postgres
from throughline.db.connection.migrations import upgrade

SMALL_SESSIONS = 100
AIM = 1.15
ROUNDS = 3
SETTINGS = "autovacuum = off\nmax_wal_size = 4GB\ncheckpoint_timeout = 1h\n"
"""Checkpoints come seldom, so that what is compared does not depend on when one came."""

FILLING = f"{SETTINGS}fsync = off\nfull_page_writes = off\nshared_buffers = 1GB\n"
MEASURING = f"{SETTINGS}shared_buffers = 128MB\n"
CONTEXT = {"window": 131_072, "max_messages_before_summary": 1_000_000, "max_tokens_before_summary": 1_000_000_000}
"""The window is so large, and the triggers so far, that nothing is compacted."""

STATISTICS_SECONDS = 11.0
"""An idle connection of PostgreSQL 15 and newer hands its statistics in after ten seconds at the latest."""

QUESTION = (
    "What did we decide about the remote control of the new interface, who wanted to ask the people in the market "
    "research again before the next meeting, and what about the budget of the design in part number {number} of it?"
)
"""As long as the filled messages: shorter rows would fit into what is left of old pages, each of which is logged."""

_BLOCKS = """
    select cast(8192 * (blks_hit + blks_read) / 1e6 as float8) as "MB read",
        cast(8192 * blks_read / 1e6 as float8) as "MB from files" from pg_stat_database where datname = $1
"""
_SESSIONS = "select s.id from sessions s join users u on u.id = s.owner_id where u.name = $1 order by s.id"


async def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, measure and print; return 1 if the aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.far", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the databases are kept")
    parser.add_argument("--sessions", type=int, default=100_000, help="of the large database, with 100 messages each")
    parser.add_argument("--backup", action="store_true", help="dump and restore it, too, which takes twice the space")
    options = parser.parse_args(arguments)
    sizes = (SMALL_SESSIONS, options.sessions)
    names = [f"far_{sessions}" for sessions in sizes]
    await fill_missing(options.folder, sizes)
    async with run_logged_postgres(options.folder, MEASURING) as (url, log):
        urls = [_address(url, name) for name in names]
        print(f"{options.sessions:,} sessions with 100 messages each, beside {SMALL_SESSIONS}")
        lines, problems = compare(await measure_turns(options.folder, url, names, log))
        _print("Turns", lines)
        async with connected(urls[0]) as small, connected(urls[1]) as large:
            _print("Plans that depend on the size", await find_plans(small, large))
        _print("Sizes", await far_operations.measure_sizes(urls[1]))
        _print("Other operations, then maintenance", await far_operations.measure(urls))
        if options.backup:
            restored = await make_database(url, "far_restored")
            _print("Backup", await far_operations.measure_backup(urls[1], restored, options.folder))
    print("\n".join(problems) or "\nNo figure of a turn exceeds the aim.")
    return 1 if problems else 0


async def fill_missing(folder: Path, sizes: Sequence[int]) -> None:
    """Fill a database for each number of sessions that has none yet. It gets its name when it is full."""
    async with run_logged_postgres(folder, FILLING) as (url, _), connected(url) as connection:
        names = {row["datname"] for row in await connection.fetch("select datname from pg_database")}
        for sessions in sizes:
            if f"far_{sessions}" not in names:
                await _fill(await make_database(url, "far_unfinished"), sessions)
                await connection.execute(f"alter database far_unfinished rename to far_{sessions}")


async def _fill(url: str, sessions: int) -> None:
    began = time.monotonic()
    await upgrade(url)
    async with connected(url) as connection:
        await connection.execute("set work_mem = '128MB'; set maintenance_work_mem = '1GB'; set jit = off")
        await fill(connection, sessions)
        filled = time.monotonic()
        await connection.execute("vacuum (analyze)")
    print(f"{sessions:,} sessions filled in {filled - began:,.0f} s, vacuumed in {time.monotonic() - filled:,.0f} s")


async def make_database(url: str, name: str) -> str:
    """Make an empty database, instead of one with this name, and return its address."""
    async with connected(url) as connection:
        await connection.execute(f"drop database if exists {name}")
        await connection.execute(f"create database {name}")
    return _address(url, name)


def _address(url: str, name: str) -> str:
    return url.replace("/throughline?", f"/{name}?")


Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Side:
    """One database with its service."""

    http: httpx.AsyncClient
    sessions: Sequence[str]

    @classmethod
    async def open(cls, stack: AsyncExitStack, folder: Path, url: str, double_url: str) -> "Side":
        """Start a service of the database at `url`, until the stack ends."""
        write_agent(folder, AGENT, context=CONTEXT)
        environment = {"DATABASE_URL": url, "RUN_EVENTS_RETENTION_HOURS": "8760"}  # no partition is dropped meanwhile
        service = stack.enter_context(run_service(folder, environment, double_url=double_url))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=service.url, timeout=60))
        async with connected(url) as connection:
            return cls(http, [str(row["id"]) for row in await connection.fetch(_SESSIONS, OWNER)])

    async def ask(self, session: str, number: int) -> float:
        """Take a turn and return its milliseconds."""
        began = time.perf_counter()
        body = {"content": QUESTION.format(number=number)}
        (await self.http.post(f"/v1/sessions/{session}/messages", json=body)).raise_for_status()
        return 1000 * (time.perf_counter() - began)

    async def ask_all(self, connection: asyncpg.Connection, number: int) -> Figures:
        """Ask each session once and return the figures of a turn, while nobody else is asked."""
        before = await wal_position(connection)
        walls = [await self.ask(session, number) for session in self.sessions]
        wal = await wal_position(connection) - before
        return {"median ms": statistics.median(walls), "WAL bytes": wal / len(walls)}


async def measure_turns(folder: Path, url: str, names: Sequence[str], log: StatementLog) -> Mapping[str, list[Figures]]:
    """Return the figures of the first turn of each session and of later ones, in both databases.

    Nobody has read a session when it is asked first. Then both databases are asked alternately, and at last one after
    the other, while all statements are written to the log.
    """
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connected(url))
        double = stack.enter_context(run_double(folder))
        sides = [await Side.open(stack, folder / name, _address(url, name), double.url) for name in names]
        turns, pid = len(sides[0].sessions), connection.get_server_pid()
        async with log.on(ignored_pid=pid) as idle:
            started = await _read(connection, names)
        first = [await side.ask_all(connection, 0) for side in sides]
        read_first = await _read(connection, names)
        walls: list[list[float]] = [[] for _ in sides]
        for number in range(ROUNDS * turns):
            for taken, side in zip(walls, sides, strict=True):
                taken.append(await side.ask(side.sessions[number % turns], 1 + number))
        read = await _read(connection, names)
        later: list[Figures] = []
        for side, taken in zip(sides, walls, strict=True):
            async with log.on(ignored_pid=pid) as logged:
                figures = await side.ask_all(connection, -1)
            count = (logged.statements - idle.statements * logged.seconds / idle.seconds) / turns
            later.append({**figures, "median ms": statistics.median(taken), "statements": count})
        return {
            "first": _with_reads(first, started, read_first, turns),
            "later": _with_reads(later, read_first, read, ROUNDS * turns),
        }


async def _read(connection: asyncpg.Connection, names: Sequence[str]) -> list[Figures]:
    """Return what the databases have read so far, once every connection has handed in its statistics."""
    await asyncio.sleep(STATISTICS_SECONDS)
    return [dict(await connection.fetchrow(_BLOCKS, name)) for name in names]


def _with_reads(own: list[Figures], before: list[Figures], after: list[Figures], turns: int) -> list[Figures]:
    return [
        {**figures, **{key: (now[key] - then[key]) / turns for key in now}}
        for figures, then, now in zip(own, before, after, strict=True)
    ]


def compare(turns: Mapping[str, list[Figures]]) -> tuple[list[Sequence[str]], list[str]]:
    """Return the lines of the table, the headings first, and which figures of later turns exceed the aim."""
    lines: list[Sequence[str]] = [("turn", "figure", "small", "large", "quotient")]
    problems = []
    for turn, (small, large) in turns.items():
        for figure, one in small.items():
            quotient = large[figure] / one if one else float("nan")
            lines.append((turn, figure, f"{one:,.2f}", f"{large[figure]:,.2f}", f"{quotient:.2f}"))
            if turn == "later" and figure != "MB from files" and quotient > AIM:
                problems.append(f"{figure} of a later turn: {quotient:.2f} times, the aim is {AIM:g}")
    return lines, problems


def _print(title: str, lines: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n\n{aligned(lines)}", flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
