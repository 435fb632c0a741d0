"""How much of what answers a question history search finds, how fast it is, and what its index costs.

`python -m benchmarks.retrieval` runs on small samples; `--data DIR`, which may be given several times, takes whole data
sets: `benchmarks.retrieval_readers` says in which forms. Each kind of talk has a table. Each conversation is a session,
each line a message. The ranking is tuned on every other conversation (`--half tuned`) and reported on the rest. With
`--embeddings URL`, an OpenAI-compatible server, search by words and meaning is measured too; `--meetings` takes only so
many of each kind. Returns 1 where a rival finds more at some cut, or as much on the whole.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import bm25s  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import snowballstemmer  # type: ignore[import-untyped]  # ships no types
from numpy.typing import NDArray

from benchmarks.figures import aligned, connected, percentile, wal_position
from benchmarks.processes import run_postgres
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_data import Archive, Line, Meeting, Question, chained
from benchmarks.retrieval_readers import Kind, read_kinds
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


def render(rows: Sequence[tuple[str, Recall]]) -> str:
    """Return the recalls as a Markdown table; where each span is a line, the lines stand there alone."""
    has_spans = any(recall.spans != recall.lines for _, recall in rows)
    heads = [f"{kind} @{cut}" for kind in (("spans", "lines") if has_spans else ("messages",)) for cut in CUTS]
    return aligned([
        ["", *heads],
        *([name, *(f"{value:.3f}" for value in (recall.all if has_spans else recall.lines))] for name, recall in rows),
    ])


def _spans(question: Question, found: Sequence[int], cut: int) -> float:
    return statistics.fmean(any(first <= line <= last for line in found[:cut]) for first, last in question.spans)


def _lines(question: Question, found: Sequence[int], cut: int) -> float:
    relevant = {line for first, last in question.spans for line in range(first, last + 1)}
    return len(relevant.intersection(found[:cut])) / len(relevant)


QUERIES = 200
WARM_UP = 10
APPENDED = 2_000

Kinds: TypeAlias = Mapping[Kind, Sequence[Meeting]]


LONG_MESSAGES = 2_500
"""Messages in the timed session of a user and an assistant, whose messages are long."""


async def measure_speed(archive: Archive, kinds: Kinds, sizes: Sequence[int]) -> str:
    """Return a Markdown table: for each size the median and 99th percentile of a search for ten messages.

    The sessions are chained of the first kind's conversations, and one is of a user and an assistant where there are
    any.
    """
    short = next(iter(kinds.values()))
    timed = [
        *((short, size) for size in sizes),
        *((long, LONG_MESSAGES) for long in [kinds.get(Kind.ASSISTANT)] if long),
    ]
    rows = [["messages in the session", "characters each", "median ms", "p99 ms"]]
    for meetings, size in timed:
        lines = list(chained(meetings, size))
        session_id = await archive.fill_session(lines)
        await archive.index(session_id)
        await archive.vacuum()
        walls = await _search(archive, session_id, [asked.text for meeting in meetings for asked in meeting.questions])
        characters = statistics.fmean(len(line.searched) for line in lines)
        figures = (f"{1000 * percentile(walls, percent):.1f}" for percent in (50, 99))
        rows.append([f"{size:,}", f"{characters:,.0f}", *figures])
    return aligned(rows)


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

USER_FACTOR = 2.0
"""What the score of a user's message is multiplied by in the comparison that knows roles."""

SAMPLES = (SAMPLE / "qmsum-questions", SAMPLE / "beam", SAMPLE)
NO_LIMIT = 1_000_000
"""Calls a minute that no embedding model reaches."""

ALONE = replace(RANKING, nearby=0.0, previous=0.0, episode=0.0, passage=0.0, beside_better=1.0)
Sessions = Mapping[SessionId, Meeting]
"""The meetings by the sessions they are stored as."""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where a rival finds as much."""
    options = _parse(arguments)
    found = read_kinds(options.data or SAMPLES)
    half = options.half or ("reported" if options.data else "all")
    kinds = {kind: taken for kind, halves in found.items() if (taken := halves.of(half)[: options.meetings])}
    if not kinds:
        sys.exit("There are no conversations with questions in the folders of --data.")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="retrieval-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url, pool_size=2))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("retrieval"))
        problems = [
            f"{kind}: {problem}"
            for kind, meetings in kinds.items()
            for problem in await report(archive, kind, meetings, options.embeddings)
        ]
        sizes = [int(size) for size in options.sizes.split(",") if size]
        first = next(iter(kinds.values()))
        print(f"{await measure_speed(archive, kinds, sizes)}\n\n{await measure_cost(archive, first)}")
    print(
        "\n".join(["", *problems]) if problems else "\nWhat is shipped finds more than every rival, and at no cut less."
    )
    return 1 if problems else 0


async def report(archive: Archive, kind: Kind, meetings: Sequence[Meeting], embeddings: str) -> list[str]:
    """Print the recall of every way; return what is wrong. `embeddings`: address of an embedding server, or ''."""
    sessions = {await archive.fill_session(meeting.lines): meeting for meeting in meetings}
    for session_id in sessions:
        await archive.index(session_id)
    await archive.vacuum()
    rivals = [*_bm25_rivals(meetings), ("PostgreSQL's ts_rank_cd", await ts_rank(archive, sessions))]
    alone, shipped = [await ours(archive, sessions, ranking) for ranking in (ALONE, RANKING)]
    messages, questions = (
        sum(map(len, parts)) for parts in zip(*((m.lines, m.questions) for m in meetings), strict=True)
    )
    print(f"{kind}: {len(meetings)} conversations, {messages:,} messages, {questions:,} questions\n")
    by_meaning = (
        [("shipped, and by meaning", await ours_by_meaning(archive, sessions, embeddings))] if embeddings else []
    )
    rows = [*rivals, ("ours, each message by itself", alone), ("shipped", shipped), *by_meaning]
    print(f"{render(rows)}\n", flush=True)
    better = [name for name, recall in rivals if not shipped.is_above(recall)]
    return [f"{name} finds more at some cut, or as much on the whole" for name in better]


def _bm25_rivals(meetings: Sequence[Meeting]) -> Iterator[tuple[str, Recall]]:
    """Yield plain BM25, and what else makes sense: speakers where they are named, roles where there are several."""
    lines = [line for meeting in meetings for line in meeting.lines]
    yield "BM25 (bm25s)", plain_bm25(meetings)
    if any(line.speaker for line in lines):
        yield "BM25, speaker before the text", plain_bm25(meetings, with_speaker)
        yield "BM25, speaker and neighbours", plain_bm25(meetings, with_speaker, shares=NEIGHBOUR_SHARES)
    if any(line.role != "user" for line in lines):
        yield f"BM25, users' messages x {USER_FACTOR:.0f}", plain_bm25(meetings, factor=USER_FACTOR)


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


def with_speaker(line: Line) -> str:
    """Return the line with its speaker's name before it."""
    return f"{line.speaker}: {line.searched}"


def plain_bm25(
    meetings: Sequence[Meeting],
    text_of: Callable[[Line], str] = lambda line: line.searched,
    *,
    shares: Sequence[float] = (),
    factor: float = 1.0,
) -> Recall:
    """Return the recall of bm25s as it comes, with English stop words and stems, each line written by `text_of`.

    The lines at distance 1, 2, … of a line add these shares of their score to its own. `factor` is for users' lines.
    """
    return recall_of(
        (question, found)
        for meeting in meetings
        for question, scores in zip(meeting.questions, bm25_scores(meeting, text_of), strict=True)
        for found in [_best(scores * _factors(meeting, factor), shares)]
    )


def bm25_scores(meeting: Meeting, text_of: Callable[[Line], str]) -> Iterator[NDArray[np.float32]]:
    """Yield for each question the scores of the lines; those with none of its words have no score."""
    stem = snowballstemmer.stemmer("english").stemWords
    tokens = partial(bm25s.tokenize, stopwords="en", stemmer=stem, show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens([text_of(line) for line in meeting.lines]), show_progress=False)
    for words in tokens([question.text for question in meeting.questions], return_ids=False):
        yield retriever.get_scores(words)


def _factors(meeting: Meeting, factor: float) -> NDArray[np.float32]:
    return np.array([factor if line.role == "user" else 1.0 for line in meeting.lines], dtype=np.float32)


def _best(scores: NDArray[np.float32], shares: Sequence[float]) -> list[int]:
    """Return the best lines, best first; a line of no score is not found."""
    whole = scores.copy()
    for distance, share in enumerate(shares, start=1):
        whole[distance:] += share * scores[:-distance]
        whole[:-distance] += share * scores[distance:]
    return [int(line) for line in np.argsort(-whole, kind="stable")[: max(CUTS)] if whole[line] > 0]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, action="append", default=[], help="folder with a data set, one or more")
    parser.add_argument("--sizes", default="1000,20000,100000", help="messages in the sessions that are timed")
    parser.add_argument(
        "--embeddings", default="", metavar="URL", help="OpenAI-compatible server of an embedding model"
    )
    parser.add_argument("--meetings", type=int, help="measure on so many conversations of each kind only")
    parser.add_argument("--half", choices=("tuned", "reported", "all"), help="default: reported, all of the samples")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
