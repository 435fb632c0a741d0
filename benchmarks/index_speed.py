"""How long a search over all sessions of a user takes, and how soon an import is found by one.

`python -m benchmarks.index_speed` fills one user's sessions up to each of `--sessions`, of `--messages` each, from the
meetings of the retrieval benchmark. Then it imports `--imported` sessions of 50 messages for another user: it searches
while one process indexes them, and for a third user where no process does.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import aligned, connected, percentile
from benchmarks.processes import run_postgres
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Archive, Line, Meeting, chained
from benchmarks.retrieval_readers import read_kinds
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.side_jobs import INDEX_OWNER, JobClaim, index_job
from throughline.domain.recall import HistoryQuery
from throughline.execution.compute_threads import work_for

IMPORTED_MESSAGES = 50
QUERIES = 100
WARM_UP = 10
LEASE_SECONDS = 3_600.0


@dataclass
class Searches:
    """Searches over all sessions of an archive's user: their questions, and the seconds that each took."""

    archive: Archive
    questions: Iterator[str]
    walls: list[float] = field(default_factory=list)

    async def search(self) -> bool:
        """Search once; return whether the result was complete."""
        began = time.perf_counter()
        query = HistoryQuery(next(self.questions), limit=10)
        found = await self.archive.database.history.search(self.archive.owner_id, None, query)
        self.walls.append(time.perf_counter() - began)
        return not found.incomplete_sessions

    def milliseconds(self, *percents: int) -> list[str]:
        """Return percentiles of the walls."""
        return [f"{1000 * percentile(self.walls, percent):,.0f}" for percent in percents]


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    meetings = [meeting for halves in read_kinds([options.data]).values() for meeting in halves.reported]
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="index-speed-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url, pool_size=4))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("many-sessions"))
        sizes = [int(size) for size in options.sessions.split(",") if size]
        print(await measure_sizes(archive, meetings, sizes, options.messages), flush=True)
        print(f"\n{await measure_import(archive, meetings, options.imported)}")
    return 0


async def measure_sizes(archive: Archive, meetings: Sequence[Meeting], sizes: Sequence[int], messages: int) -> str:
    """Return a table: for each number of sessions, what indexing, a search and the schedule's statement take."""
    lines = chained(meetings, max(sizes) * messages)
    rows = [["sessions", "messages", "indexed per second", "median ms", "p99 ms", "schedule ms"]]
    stored = 0
    for size in sizes:
        await fill_sessions(archive, lines, size - stored, messages)
        seconds = await _seconds(lambda: index_all(archive))
        await archive.vacuum()
        searches = Searches(archive, _questions(meetings))
        for _ in range(WARM_UP + QUERIES):
            await searches.search()
        searches.walls = searches.walls[WARM_UP:]
        schedule = await _seconds(archive.database.history.enqueue_indexing)
        speed = f"{(size - stored) * messages / seconds:,.0f}"
        figures = [*searches.milliseconds(50, 99), f"{1000 * schedule:.1f}"]
        rows.append([f"{size:,}", f"{size * messages:,}", speed, *figures])
        stored = size
    return aligned(rows)


async def measure_import(archive: Archive, meetings: Sequence[Meeting], sessions: int) -> str:
    """Return a table: how long it takes until a search over an import is complete, and the searches until then."""
    rows = [[f"{sessions:,} sessions of {IMPORTED_MESSAGES}", "seconds", "searches", "median ms", "longest ms"]]
    for name, start in (("indexed by the job", index_all), ("indexed by searches", None)):
        owner_id = await archive.database.users.get_or_create(name)
        own = replace(archive, owner_id=owner_id)
        await fill_sessions(own, chained(meetings, sessions * IMPORTED_MESSAGES), sessions, IMPORTED_MESSAGES)
        searches = Searches(own, _questions(meetings))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            if start is not None:
                group.create_task(start(own))
                await asyncio.sleep(0)
            await _until_complete(searches)
            seconds = time.perf_counter() - began
        rows.append([name, f"{seconds:.1f}", str(len(searches.walls)), *searches.milliseconds(50, 100)])
    return aligned(rows)


async def fill_sessions(archive: Archive, lines: Iterator[Line], sessions: int, messages: int) -> None:
    """Store the next lines as sessions."""
    for _ in range(sessions):
        await archive.fill_session(itertools.islice(lines, messages))


async def index_all(archive: Archive) -> None:
    """Index the user's messages as the worker does, holding the job."""
    work_for(archive.owner_id)
    jobs = archive.database.jobs
    await jobs.enqueue(index_job(archive.owner_id))
    taken = await jobs.claim(JobClaim("benchmark", LEASE_SECONDS, [INDEX_OWNER]))
    assert taken is not None
    is_more_due = True
    while is_more_due:
        _, is_more_due = await archive.database.history.index_owner(archive.owner_id)
    await jobs.finish(taken.lease)


async def _until_complete(searches: Searches) -> None:
    while not await searches.search():
        pass


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _questions(meetings: Sequence[Meeting]) -> Iterator[str]:
    return itertools.cycle([question.text for meeting in meetings for question in meeting.questions])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_speed", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE / "qmsum-questions", help="folder with QMSum's *.jsonl")
    parser.add_argument("--sessions", default="100,1000,10000", help="numbers of sessions that are searched")
    parser.add_argument("--messages", type=int, default=100, help="messages in each of them")
    parser.add_argument("--imported", type=int, default=1_500, help="sessions that are imported")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
