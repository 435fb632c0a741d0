"""How much of what answers a question history search finds, how fast it is, and what its index costs.

`python -m benchmarks.retrieval` runs on a small sample; `--data DIR` takes the whole of QMSum (`*.jsonl`). Each meeting
is a session, each line a message. The ranking is tuned on every other meeting (`--tune` prints the grid) and
reported on the rest. Returns 1 where plain BM25 finds more at some cut, or as much on the whole.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.retrieval_data import SAMPLE, Meeting, Question, read_meetings
from benchmarks.retrieval_recall import CUTS, Recall, RecallMeter, render
from benchmarks.retrieval_rivals import fill_first_built, library_search, search_first_built
from benchmarks.retrieval_rows import fill_session, open_owner
from benchmarks.retrieval_speed import measure_cost, measure_speed
from benchmarks.servers import dsn_of, run_postgres
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.search.find import Ranking
from throughline.db.search.repository import RANKING
from throughline.domain.ids import SessionId, UserId
from throughline.domain.recall import HistoryQuery

TRIED = (
    *(replace(RANKING, saturation=value) for value in (0.9, 1.2, 1.6)),
    *(replace(RANKING, length_share=value) for value in (0.2, 0.3, 0.5)),
    *(replace(RANKING, nearby=value) for value in (0.0, 0.2, 0.3, 0.4)),
    *(replace(RANKING, reach=value) for value in (3, 6, 10)),
    *(replace(RANKING, author=value) for value in (0.0, 0.3, 0.5, 0.8)),
)
OURS, LIBRARY, LIBRARY_WITH_SPEAKER = "shipped", "BM25 (bm25s)", "BM25 (bm25s), speaker before the text"


@dataclass(frozen=True, slots=True)
class Stored:
    """A meeting and the session it is stored as."""

    meeting: Meeting
    session_id: SessionId


class Bench:
    """Searches stored meetings in every way there is."""

    def __init__(self, database: Database, connection: asyncpg.Connection, owner_id: UserId) -> None:
        """Search as `owner_id`."""
        self.database, self.connection, self.owner_id = database, connection, owner_id

    async def store(self, meetings: Iterable[Meeting]) -> list[Stored]:
        """Store each meeting as a session and index it, in our way and in the first one."""
        stored = []
        for meeting in meetings:
            session_id = await fill_session(self.database, self.connection, self.owner_id, meeting.lines)
            await self.database.history.index_session(session_id)
            await fill_first_built(self.connection, session_id)
            stored.append(Stored(meeting, session_id))
        await self.connection.execute("vacuum (analyze)")
        return stored

    async def ours(self, stored: Sequence[Stored], ranking: Ranking = RANKING) -> Recall:
        """Return the recall of our search."""
        meter = RecallMeter()
        for one in stored:
            for question in one.meeting.questions:
                meter.add(question, await self._find(one.session_id, question, ranking))
        return meter.result()

    async def first_built(self, stored: Sequence[Stored]) -> Recall:
        """Return the recall of PostgreSQL's own full text."""
        meter = RecallMeter()
        for one in stored:
            for question in one.meeting.questions:
                meter.add(question, await search_first_built(self.connection, one.session_id, question.text))
        return meter.result()

    async def _find(self, session_id: SessionId, question: Question, ranking: Ranking) -> list[int]:
        query = HistoryQuery(question.text, max(CUTS))
        found = await self.database.history.search(self.owner_id, session_id, query, ranking)
        return [hit.message.position - 1 for hit in found.hits]


def library(stored: Sequence[Stored], *, with_speaker: bool) -> Recall:
    """Return the recall of plain BM25."""
    meter = RecallMeter()
    for one in stored:
        search = library_search(one.meeting, with_speaker=with_speaker)
        for question in one.meeting.questions:
            meter.add(question, search(question.text))
    return meter.result()


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where plain BM25 finds as much."""
    options = _parse(arguments)
    halves = read_meetings(options.data)
    with tempfile.TemporaryDirectory(prefix="retrieval-") as name:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(run_postgres(Path(name)))
            await upgrade(url)
            database = await Database.open(DatabaseConfig(url=url, pool_size=2))
            stack.push_async_callback(database.close)
            connection = await asyncpg.connect(dsn_of(url))
            stack.push_async_callback(connection.close)
            bench = Bench(database, connection, await open_owner(database))
            if options.tune:
                await tune(bench, await bench.store(halves.tuned))
                return 0
            problems = await report(bench, await bench.store(halves.reported))
            sizes = [int(size) for size in options.sizes.split(",") if size]
            questions = [question.text for meeting in halves.reported for question in meeting.questions]
            print(await measure_speed(database, connection, halves.reported, sizes=sizes, questions=questions))
            print(await measure_cost(database, connection, halves.reported))
    print("\n".join(problems) or "\nWhat is shipped finds more than plain BM25, and at no cut less.")
    return 1 if problems else 0


async def report(bench: Bench, stored: Sequence[Stored]) -> list[str]:
    """Print the recall of every way; return what is wrong."""
    baselines = {
        LIBRARY: library(stored, with_speaker=False),
        LIBRARY_WITH_SPEAKER: library(stored, with_speaker=True),
        "PostgreSQL full text as first built": await bench.first_built(stored),
    }
    shipped = await bench.ours(stored)
    alone = await bench.ours(stored, replace(RANKING, nearby=0.0))
    questions = sum(len(one.meeting.questions) for one in stored)
    print(f"{len(stored)} meetings, {questions} questions\n")
    print(render([*baselines.items(), ("ours, each message by itself", alone), (OURS, shipped)]))
    rivals = (LIBRARY, LIBRARY_WITH_SPEAKER)
    return [
        f"{name} finds more at some cut, or as much on the whole"
        for name in rivals
        if not shipped.is_above(baselines[name])
    ]


async def tune(bench: Bench, stored: Sequence[Stored]) -> None:
    """Print the recall for each number of the ranking in turn, the others as shipped, best last."""
    found = [(ranking, await bench.ours(stored, ranking)) for ranking in dict.fromkeys(TRIED)]
    rows = [(_name(ranking), recall) for ranking, recall in sorted(found, key=lambda pair: pair[1].mean)]
    print(render(rows))


def _name(ranking: Ranking) -> str:
    numbers = (ranking.saturation, ranking.length_share, ranking.nearby, ranking.reach, ranking.author)
    return "k1 {} b {} nearby {} reach {} author {}".format(*numbers)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE, help="folder with QMSum's *.jsonl")
    parser.add_argument("--sizes", default="1000,20000,100000", help="messages in the sessions that are timed")
    parser.add_argument("--tune", action="store_true", help="print the grid on the half that is tuned on, nothing else")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
