"""How much of what answers a question history search finds, how fast it is, and what its index costs.

`python -m benchmarks.retrieval` runs on a small sample; `--data DIR` takes the whole of QMSum (`*.jsonl`). Each meeting
is a session, each line a message. The ranking is tuned on every other meeting (`--half tuned`) and reported on the
rest. Returns 1 where plain BM25 finds more at some cut, or as much on the whole.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import bm25s  # type: ignore[import-untyped]  # it ships no types
import snowballstemmer  # type: ignore[import-untyped]  # ships no types

from benchmarks.figures import connected
from benchmarks.processes import run_postgres
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Meeting, Question, read_meetings
from benchmarks.retrieval_recall import CUTS, Recall, recall_of, render
from benchmarks.retrieval_sessions import Archive
from benchmarks.retrieval_speed import measure_cost, measure_speed
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.search.rank import Ranking
from throughline.db.search.repository import RANKING
from throughline.domain.ids import SessionId
from throughline.domain.recall import HistoryQuery

Sessions = Mapping[SessionId, Meeting]
"""The meetings by the sessions they are stored as."""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where plain BM25 finds as much."""
    options = _parse(arguments)
    halves = read_meetings(options.data)
    meetings = halves.tuned if options.half == "tuned" else halves.reported
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retrieval-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url, pool_size=2))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("retrieval"))
        problems = await report(archive, meetings)
        sizes = [int(size) for size in options.sizes.split(",") if size]
        print(f"\n{await measure_speed(archive, meetings, sizes)}\n\n{await measure_cost(archive, meetings)}")
    print("\n".join(problems) or "\nWhat is shipped finds more than plain BM25, and at no cut less.")
    return 1 if problems else 0


async def report(archive: Archive, meetings: Sequence[Meeting]) -> list[str]:
    """Print the recall of every way; return what is wrong."""
    sessions = {await archive.fill_session(meeting.lines): meeting for meeting in meetings}
    for session_id in sessions:
        await archive.index(session_id)
    await archive.vacuum()
    rivals = {
        "BM25 (bm25s)": plain_bm25(meetings, "{line.text}"),
        "BM25 (bm25s), speaker before the text": plain_bm25(meetings, "{line.speaker}: {line.text}"),
    }
    alone, shipped = [await ours(archive, sessions, ranking) for ranking in (replace(RANKING, nearby=0.0), RANKING)]
    print(f"{len(meetings)} meetings, {sum(len(meeting.questions) for meeting in meetings)} questions\n")
    print(render([*rivals.items(), ("ours, each message by itself", alone), ("shipped", shipped)]))
    better = [name for name, recall in rivals.items() if not shipped.is_above(recall)]
    return [f"{name} finds more at some cut, or as much on the whole" for name in better]


async def ours(archive: Archive, sessions: Sessions, ranking: Ranking) -> Recall:
    """Return the recall of our search."""

    async def find(session_id: SessionId, question: Question) -> list[int]:
        query = HistoryQuery(question.text, max(CUTS))
        found = await archive.database.history.search(archive.owner_id, session_id, query, ranking)
        return [hit.message.position - 1 for hit in found.hits]

    asked = [(session_id, question) for session_id, meeting in sessions.items() for question in meeting.questions]
    return recall_of([(question, await find(session_id, question)) for session_id, question in asked])


def plain_bm25(meetings: Sequence[Meeting], text: str) -> Recall:
    """Return the recall of bm25s as it comes, with English stop words and stems, each line written like `text`."""
    return recall_of(
        (question, found)
        for meeting in meetings
        for question, found in zip(meeting.questions, _bm25_results(meeting, text), strict=True)
    )


def _bm25_results(meeting: Meeting, text: str) -> list[list[int]]:
    """Return for each question the lines found, best first; a line of no score is not found."""

    def tokens(texts: list[str]) -> object:
        stem = snowballstemmer.stemmer("english").stemWords
        return bm25s.tokenize(texts, stopwords="en", stemmer=stem, show_progress=False)

    retriever = bm25s.BM25()
    retriever.index(tokens([text.format(line=line) for line in meeting.lines]), show_progress=False)
    most = min(max(CUTS), len(meeting.lines))
    asked = tokens([question.text for question in meeting.questions])
    found, scores = retriever.retrieve(asked, k=most, show_progress=False)
    return [
        [int(line) for line, score in zip(*answer, strict=True) if score > 0]
        for answer in zip(found, scores, strict=True)
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE / "qmsum-questions", help="folder with QMSum's *.jsonl")
    parser.add_argument("--sizes", default="1000,20000,100000", help="messages in the sessions that are timed")
    parser.add_argument("--half", choices=("tuned", "reported"), default="reported", help="meetings to measure on")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
