"""What one turn costs, and that it does not depend on what lies before the cursor.

`python -m benchmarks.turn_cost`. Sessions with rows before and after their cursor are written straight into the
database; then a few turns are sent to each over REST, with an instant model and a window of 128k. Wall time is a
median; CPU (of the service's process), WAL and database blocks read (hit or not, in bytes, less what the service reads
while idle) are means over the turns.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import httpx

from benchmarks.figures import aligned, connected, cpu_seconds, wal_position
from benchmarks.processes import run_double, run_postgres, run_service, write_agent
from throughline.context.measure import count_message
from throughline.domain.message import NewMessage, Role, Source
from throughline.llm.counters import make_counter

TEXT = (
    "The harbour office keeps its ledgers by the week, and people who wonder when a ship came in asks there first; "
    "the answer is copied into the log with the number of the page it was found on."
)
SUMMARY = "## State\n" + "\n".join(f"- [#{number}] {TEXT[:90]}" for number in range(1, 20))

_INSERT = """
insert into messages (id, session_id, position, role, content, source, token_count, counter, created_at)
select gen_random_uuid(), $1, position, case position % 2 when 1 then 'user' else 'assistant' end,
    position || ': ' || $2, 'api', $3, $4, $5
from generate_series(1, $6::int) as position
"""
_COUNT = "update sessions set message_count = $2::int, message_tokens = $2::bigint * $3 where id = $1"
_SUMMARISE = """
update sessions s set conversation_summary = $3, summary_tokens = $4, summary_version = 1,
    summary_through_position = m.position, summary_through_id = m.id
from messages m where s.id = $1 and m.session_id = s.id and m.position = $2
"""


async def fill_session(connection: asyncpg.Connection, session_id: str, before: int, after: int) -> None:
    """Give the session `before` rows up to its cursor and `after` rows behind it."""
    counter = make_counter("tiktoken")
    tokens = count_message(NewMessage(Role.USER, f"1000: {TEXT}", Source.API), counter.count)
    session, total = UUID(session_id), before + after
    await connection.execute(_INSERT, session, TEXT, tokens, counter.name, datetime.now(UTC), total)
    await connection.execute(_COUNT, session, total, tokens)
    if before:
        await connection.execute(_SUMMARISE, session, before, SUMMARY, counter.count(SUMMARY))
    await connection.execute("vacuum (analyze) messages, sessions, runs, run_events")  # no dead rows of earlier cells


AGENT = "turn-cost"
NEVER = 1_000_000
CONTEXT = {"window": 131_072, "max_messages_before_summary": NEVER, "max_tokens_before_summary": 1000 * NEVER}
"""The window is so large, and the triggers so far, that nothing is ever compacted."""

BLOCK_BYTES = 8192
STATISTICS_SECONDS = 11.0
"""An idle connection of PostgreSQL 15 and newer hands its statistics in after ten seconds at the latest."""

WARM_UP_TURNS = 3
ALLOWED_GROWTH = 1.25
"""So much more may be read with the most rows before the cursor than with none: the tree of an index is deeper."""

BLOCKS = "select blks_hit + blks_read from pg_stat_database where datname = current_database()"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a turn of one session cost."""

    before: int
    after: int
    wall_ms: float
    cpu_ms: float
    wal_bytes: float
    read_bytes: float


class Meter:
    """Measures turns of one service."""

    def __init__(self, connection: asyncpg.Connection, http: httpx.AsyncClient, pid: int) -> None:
        """Take what it reads and asks."""
        self._connection, self._http, self._pid = connection, http, pid
        self._idle_blocks_a_second = 0.0

    async def learn_idle(self) -> None:
        """Measure what the service reads while nobody asks it anything: its workers look for runs every second."""
        before, began = await self._blocks(), time.monotonic()
        self._idle_blocks_a_second = (await self._blocks() - before) / (time.monotonic() - began)

    async def measure(self, before: int, after: int, turns: int) -> Cost:
        """Make a session and measure its turns."""
        created = (await self._http.post("/v1/sessions", json={"agent": AGENT})).raise_for_status()
        session_id: str = created.json()["id"]
        await fill_session(self._connection, session_id, before, after)
        await self._turns(session_id, WARM_UP_TURNS)
        blocks, began = await self._blocks(), time.monotonic()
        cpu, wal = cpu_seconds(self._pid), await wal_position(self._connection)
        walls = await self._turns(session_id, turns)
        cpu, wal = cpu_seconds(self._pid) - cpu, await wal_position(self._connection) - wal
        read = await self._blocks() - blocks - self._idle_blocks_a_second * (time.monotonic() - began)
        return Cost(
            before=before,
            after=after,
            wall_ms=1000 * statistics.median(walls),
            cpu_ms=1000 * cpu / turns,
            wal_bytes=wal / turns,
            read_bytes=BLOCK_BYTES * read / turns,
        )

    async def _turns(self, session_id: str, turns: int) -> list[float]:
        walls: list[float] = []
        for number in range(turns):
            began = time.perf_counter()
            path = f"/v1/sessions/{session_id}/messages"
            (await self._http.post(path, json={"content": f"And what about number {number}?"})).raise_for_status()
            walls.append(time.perf_counter() - began)
        return walls

    async def _blocks(self) -> int:
        """Return the blocks read so far in this database, once every connection has handed in its statistics."""
        await self._connection.execute("select pg_stat_force_next_flush()")
        await asyncio.sleep(STATISTICS_SECONDS)
        return int(await self._connection.fetchval(BLOCKS))


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if a turn reads more the more lies before the cursor."""
    options = _parse(arguments)
    cells = list(itertools.product(_numbers(options.after), _numbers(options.before)))
    with tempfile.TemporaryDirectory(prefix="turn-cost-") as name:
        folder = Path(name)
        async with run_postgres(folder) as url:
            costs = await _measure(folder, url, cells, options.turns)
    print(render(costs))
    problems = dependent(costs)
    print("\n".join(problems) or "\nA turn's cost does not depend on what lies before the cursor.")
    return 1 if problems else 0


def render(costs: Sequence[Cost]) -> str:
    """Return the costs as a Markdown table."""
    rows = [
        (
            f"{cost.after:,}",
            f"{cost.before:,}",
            f"{cost.wall_ms:.1f}",
            f"{cost.cpu_ms:.1f}",
            f"{cost.wal_bytes:,.0f}",
            f"{cost.read_bytes:,.0f}",
        )
        for cost in costs
    ]
    return aligned([("rows after", "rows before", "wall ms", "CPU ms", "WAL bytes", "database bytes read"), *rows])


def dependent(costs: Sequence[Cost]) -> list[str]:
    """Return where more is read with rows before the cursor than without."""
    least = {cost.after: cost for cost in sorted(costs, key=lambda cost: -cost.before)}
    return [
        f"{cost.after} rows after the cursor: {cost.read_bytes / least[cost.after].read_bytes:.2f} times as many bytes "
        f"are read with {cost.before:,} rows before it as with {least[cost.after].before:,}"
        for cost in costs
        if cost.read_bytes > ALLOWED_GROWTH * least[cost.after].read_bytes
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turn_cost", description=__doc__)
    parser.add_argument("--after", default="50,500", help="rows after the cursor")
    parser.add_argument("--before", default="0,1000,100000", help="rows before it")
    parser.add_argument("--turns", type=int, default=30, help="turns measured; each adds two rows after the cursor")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(item) for item in text.split(",")]


async def _measure(folder: Path, url: str, cells: Sequence[tuple[int, int]], turns: int) -> list[Cost]:
    write_agent(folder, AGENT, context=CONTEXT)
    async with AsyncExitStack() as stack:
        double = stack.enter_context(run_double(folder))
        service = stack.enter_context(run_service(folder, {"DATABASE_URL": url}, double_url=double.url))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=service.url, timeout=60))
        connection = await stack.enter_async_context(connected(url))
        meter = Meter(connection, http, service.pid)
        await meter.learn_idle()
        return [await meter.measure(before, after, turns) for after, before in cells]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
