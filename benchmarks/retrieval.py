"""How much of what answers a question history search finds, how fast it is, and what its index costs.

`python -m benchmarks.retrieval` runs on a small sample; `--data DIR` takes the whole of QMSum (`*.jsonl`) or of LoCoMo
(`*.json`). Each meeting or dialogue is a session, each line a message. The ranking is tuned on every other one (`--half
tuned`) and reported on the rest. With `--embeddings URL`, an OpenAI-compatible server, search by words and meaning is
measured too; `--meetings` takes only so many. Returns 1 where a rival finds more at some cut, or as much on the whole.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import bm25s  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import snowballstemmer  # type: ignore[import-untyped]  # ships no types
from numpy.typing import NDArray

from benchmarks.figures import aligned, connected, percentile, wal_position
from benchmarks.processes import run_postgres
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Archive, Meeting, Question, chained, read_meetings
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.search.repository import RANKING
from throughline.db.search.scores import Ranking
from throughline.domain.basic_types import SessionId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.recall import HistoryQuery, SearchResult
from throughline.domain.run import Claimer, OnBusy, RunInput, Submission
from throughline.llm.registry import EmbeddingConfig, make_embedder
from throughline.system_clock import SystemClock
from throughline.turn.recall.embed_missing import EmbeddingDependencies, EmbeddingModel, EmbedHistory, Pace
from throughline.turn.recall.history_search import HistorySearch, MessageVectors

CUTS = (5, 10, 25, 50)


@dataclass(frozen=True, slots=True)
class Recall:
    """Means over all questions, for each of CUTS.

    `spans`: of a question's spans those with a line among the results; `lines`: of the lines in them, likewise.
    """

    spans: tuple[float, ...]
    lines: tuple[float, ...]

    @property
    def all(self) -> tuple[float, ...]:
        """Those by spans and those by lines."""
        return (*self.spans, *self.lines)

    def is_above(self, other: "Recall") -> bool:
        """Whether it is better on the whole and at no cut worse, by spans or by lines."""
        is_never_worse = all(mine >= theirs for mine, theirs in zip(self.all, other.all, strict=True))
        return is_never_worse and sum(self.all) > sum(other.all)


def recall_of(answers: Iterable[tuple[Question, Sequence[int]]]) -> Recall:
    """Return the recall of questions, each with the lines that were found for it, best first."""
    each = [([_spans(*answer, cut) for cut in CUTS], [_lines(*answer, cut) for cut in CUTS]) for answer in answers]
    spans, lines = zip(*each, strict=True)
    return Recall(
        tuple(map(statistics.fmean, zip(*spans, strict=True))), tuple(map(statistics.fmean, zip(*lines, strict=True)))
    )


def render(rows: Iterable[tuple[str, Recall]]) -> str:
    """Return the recalls as a Markdown table."""
    heads = [f"{kind} @{cut}" for kind in ("spans", "lines") for cut in CUTS]
    return aligned([["", *heads], *([name, *(f"{value:.3f}" for value in recall.all)] for name, recall in rows)])


def _spans(question: Question, found: Sequence[int], cut: int) -> float:
    return statistics.fmean(any(first <= line <= last for line in found[:cut]) for first, last in question.spans)


def _lines(question: Question, found: Sequence[int], cut: int) -> float:
    relevant = {line for first, last in question.spans for line in range(first, last + 1)}
    return len(relevant.intersection(found[:cut])) / len(relevant)


QUERIES = 200
WARM_UP = 10
APPENDED = 2_000


async def measure_speed(archive: Archive, meetings: Sequence[Meeting], sizes: Sequence[int]) -> str:
    """Return a Markdown table: for each size the median and 99th percentile of a search for ten messages."""
    questions = [question.text for meeting in meetings for question in meeting.questions]
    lines = [["messages in the session", "median ms", "p99 ms"]]
    for size in sizes:
        session_id = await archive.fill_session(chained(meetings, size))
        await archive.index(session_id)
        await archive.vacuum()
        walls = await _search(archive, session_id, questions)
        lines.append([f"{size:,}", *(f"{1000 * percentile(walls, percent):.1f}" for percent in (50, 99))])
    return aligned(lines)


async def measure_cost(archive: Archive, meetings: Sequence[Meeting]) -> str:
    """Return a Markdown table: what a turn pays for a message, and what indexing costs beside the turns."""
    session_id = await archive.fill_session(())
    lines = list(chained(meetings, APPENDED))
    messages = [NewMessage(Role.USER, line.text, Source.API, author=line.speaker) for line in lines]
    marks = [await _mark(archive)]
    await _append(archive, session_id, messages)
    marks.append(await _mark(archive))
    await archive.index(session_id)
    marks.append(await _mark(archive))
    seconds, wal = (
        [later - before for before, later in itertools.pairwise(column)] for column in zip(*marks, strict=True)
    )
    size = statistics.fmean(len(line.text) for line in lines)
    names = ("stored by a turn", "indexed beside the turns")
    return aligned([
        [f"{APPENDED:,} messages of {size:.0f} characters", "µs a message", "WAL bytes a message"],
        *(
            [name, f"{1e6 * took / APPENDED:,.0f}", f"{written / APPENDED:,.0f}"]
            for name, took, written in zip(names, seconds, wal, strict=True)
        ),
    ])


async def _mark(archive: Archive) -> tuple[float, int]:
    return time.perf_counter(), await wal_position(archive.connection)


async def _search(archive: Archive, session_id: SessionId, questions: Sequence[str]) -> list[float]:
    walls = []
    for question in itertools.islice(itertools.cycle(questions), WARM_UP + QUERIES):
        began = time.perf_counter()
        await archive.database.history.search(archive.owner_id, session_id, HistoryQuery(question, limit=10))
        walls.append(time.perf_counter() - began)
    return walls[WARM_UP:]


async def _append(archive: Archive, session_id: SessionId, messages: Sequence[NewMessage]) -> None:
    submission = Submission(
        owner_id=archive.owner_id,
        session_id=session_id,
        input=RunInput("begin"),
        source=Source.API,
        idempotency_key=None,
        fingerprint="",
        on_busy=OnBusy.ENQUEUE,
    )
    submitted = await archive.database.runs.submit(submission, Claimer("benchmark", lease_seconds=600))
    assert submitted.claimed is not None
    for number, message in enumerate(messages):
        await archive.database.messages.append_message(submitted.claimed.lease, f"step:{number}", message)


NEIGHBOUR_SHARES = (0.5, 0.25)
"""Shares of a line's score that plain BM25 adds to the lines one and two places away."""

NO_LIMIT = 1_000_000
"""Calls a minute that no embedding model reaches."""

ALONE = replace(RANKING, nearby=0.0, previous=0.0, episode=0.0, passage=0.0, beside_better=1.0)
Sessions = Mapping[SessionId, Meeting]
"""The meetings by the sessions they are stored as."""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where a rival finds as much."""
    options = _parse(arguments)
    halves = read_meetings(options.data)
    meetings = (halves.tuned if options.half == "tuned" else halves.reported)[: options.meetings]
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retrieval-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url, pool_size=2))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("retrieval"))
        problems = await report(archive, meetings, options.embeddings)
        sizes = [int(size) for size in options.sizes.split(",") if size]
        print(f"\n{await measure_speed(archive, meetings, sizes)}\n\n{await measure_cost(archive, meetings)}")
    print("\n".join(problems) or "\nWhat is shipped finds more than every rival, and at no cut less.")
    return 1 if problems else 0


async def report(archive: Archive, meetings: Sequence[Meeting], embeddings: str) -> list[str]:
    """Print the recall of every way; return what is wrong. `embeddings`: address of an embedding server, or ''."""
    sessions = {await archive.fill_session(meeting.lines): meeting for meeting in meetings}
    for session_id in sessions:
        await archive.index(session_id)
    await archive.vacuum()
    rivals = {
        "BM25 (bm25s)": plain_bm25(meetings, "{line.text}"),
        "BM25, speaker before the text": plain_bm25(meetings, "{line.speaker}: {line.text}"),
        "BM25, speaker and neighbours": plain_bm25(meetings, "{line.speaker}: {line.text}", NEIGHBOUR_SHARES),
        "PostgreSQL's ts_rank_cd": await ts_rank(archive, sessions),
    }
    alone, shipped = [await ours(archive, sessions, ranking) for ranking in (ALONE, RANKING)]
    print(f"{len(meetings)} meetings, {sum(len(meeting.questions) for meeting in meetings)} questions\n")
    by_meaning = (
        [("shipped, and by meaning", await ours_by_meaning(archive, sessions, embeddings))] if embeddings else []
    )
    print(render([*rivals.items(), ("ours, each message by itself", alone), ("shipped", shipped), *by_meaning]))
    better = [name for name, recall in rivals.items() if not shipped.is_above(recall)]
    return [f"{name} finds more at some cut, or as much on the whole" for name in better]


async def ours(archive: Archive, sessions: Sessions, ranking: Ranking) -> Recall:
    """Return the recall of our search by words."""

    async def search(session_id: SessionId, query: HistoryQuery) -> SearchResult:
        return await archive.database.history.search(archive.owner_id, session_id, query, ranking)

    return await _recall(sessions, search)


async def ours_by_meaning(archive: Archive, sessions: Sessions, url: str) -> Recall:
    """Return the recall of our search by words and meaning, with the embedding model behind `url`."""
    clock, embedder = SystemClock(), make_embedder(EmbeddingConfig("openai:any", url))
    model = EmbeddingModel(EmbeddingDependencies(embedder, archive.database.jobs, clock, (), archive.database.usage))
    vectors = archive.database.message_vectors
    try:
        embedding = EmbedHistory(model, vectors, Pace(clock, NO_LIMIT), clock)
        while await embedding.run("openai:any") is not None:
            pass
        await archive.vacuum()
        history = HistorySearch(archive.database.history, MessageVectors(model, vectors))

        async def search(session_id: SessionId, query: HistoryQuery) -> SearchResult:
            return await history.search(archive.owner_id, session_id, query)

        return await _recall(sessions, search)
    finally:
        await embedder.close()


async def _recall(sessions: Sessions, search: Callable[[SessionId, HistoryQuery], Awaitable[SearchResult]]) -> Recall:
    async def find(session_id: SessionId, question: Question) -> list[int]:
        found = await search(session_id, HistoryQuery(question.text, max(CUTS)))
        return [hit.message.position - 1 for hit in found.hits]

    asked = [(session_id, question) for session_id, meeting in sessions.items() for question in meeting.questions]
    return recall_of([(question, await find(session_id, question)) for session_id, question in asked])


async def ts_rank(archive: Archive, sessions: Sessions) -> Recall:
    """Return the recall of PostgreSQL's full-text search: lines with any word of the question, by cover density."""
    asked = [(session_id, question) for session_id, meeting in sessions.items() for question in meeting.questions]
    return recall_of([(question, await archive.ts_rank(session_id, question.text)) for session_id, question in asked])


def plain_bm25(meetings: Sequence[Meeting], text: str, shares: Sequence[float] = ()) -> Recall:
    """Return the recall of bm25s as it comes, with English stop words and stems, each line written like `text`.

    The lines at distance 1, 2, … of a line add these shares of their score to its own.
    """
    return recall_of(
        (question, found)
        for meeting in meetings
        for question, found in zip(meeting.questions, _bm25_results(meeting, text, shares), strict=True)
    )


def _bm25_results(meeting: Meeting, text: str, shares: Sequence[float]) -> list[list[int]]:
    """Return for each question the lines found, best first; a line of no score is not found."""
    stem = snowballstemmer.stemmer("english").stemWords
    tokens = partial(bm25s.tokenize, stopwords="en", stemmer=stem, show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens([text.format(line=line) for line in meeting.lines]), show_progress=False)
    return [
        _best(retriever.get_scores(words), shares)
        for words in tokens([question.text for question in meeting.questions], return_ids=False)
    ]


def _best(scores: NDArray[np.float32], shares: Sequence[float]) -> list[int]:
    whole = scores.copy()
    for distance, share in enumerate(shares, start=1):
        whole[distance:] += share * scores[:-distance]
        whole[:-distance] += share * scores[distance:]
    return [int(line) for line in np.argsort(-whole, kind="stable")[: max(CUTS)] if whole[line] > 0]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE / "qmsum-questions", help="folder with QMSum's *.jsonl")
    parser.add_argument("--sizes", default="1000,20000,100000", help="messages in the sessions that are timed")
    parser.add_argument(
        "--embeddings", default="", metavar="URL", help="OpenAI-compatible server of an embedding model"
    )
    parser.add_argument("--meetings", type=int, help="measure on so many meetings only")
    parser.add_argument("--half", choices=("tuned", "reported"), default="reported", help="meetings to measure on")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
