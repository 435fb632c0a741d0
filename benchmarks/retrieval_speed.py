"""How long a search takes in sessions of several sizes, and what storing and indexing a message costs."""

import itertools
import statistics
import time
from collections.abc import Sequence

from benchmarks.figures import aligned, percentile, wal_position
from benchmarks.retrieval_data import Meeting, chained
from benchmarks.retrieval_sessions import Archive
from throughline.domain.basic_types import SessionId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.recall import HistoryQuery
from throughline.domain.run import Claimer, OnBusy, RunInput, Submission

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
