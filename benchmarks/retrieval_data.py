"""Conversations with questions and the lines that answer them, as the retrieval benchmark reads them.

Two formats are known: QMSum's meetings (`*.jsonl`), and LoCoMo's dialogues of two people over many days (`*.json`,
https://github.com/snap-research/locomo).
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.replay_data import Json, json_lines
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.session import NewSession

NOISE = re.compile(r"\{\w+\}\s*")
"""What transcribers wrote for a cough or an unclear word."""


EVIDENCE = re.compile(r"D\d+:\d+")
SECONDS_A_LINE = 30


@dataclass(frozen=True, slots=True)
class Line:
    """What one speaker said in one go, when, if that is known, and in which role."""

    speaker: str
    text: str
    at: datetime | None = None
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the spans of lines (first and last, from 0) that people marked as its answer."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """A transcript and what was asked about it."""

    lines: tuple[Line, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Halves:
    """The meetings by turns: on one half the ranking is tuned, on the other it is reported."""

    tuned: tuple[Meeting, ...]
    reported: tuple[Meeting, ...]


def read_meetings(folder: Path) -> Halves:
    """Return the conversations of all `*.jsonl` and `*.json` files in the folder, in the order of names and lines."""
    dialogues = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    meetings = (*map(_meeting, json_lines(folder)), *map(_dialogue, dialogues))
    return Halves(meetings[::2], meetings[1::2])


def chained(meetings: Sequence[Meeting], count: int) -> Iterator[Line]:
    """Yield `count` lines: one meeting after the other, and from the first again."""
    lines = itertools.chain.from_iterable(meeting.lines for meeting in itertools.cycle(meetings))
    return itertools.islice(lines, count)


def _meeting(read: Json) -> Meeting:
    lines = tuple(Line(said["speaker"], NOISE.sub("", said["content"]) or "-") for said in read["meeting_transcripts"])
    questions = (
        Question(asked["query"], tuple((int(first), int(last)) for first, last in asked["relevant_text_span"]))
        for asked in read["specific_query_list"]
    )
    return Meeting(lines, tuple(question for question in questions if question.spans))


def _dialogue(read: Json) -> Meeting:
    """Return a LoCoMo dialogue. The lines of one sitting are SECONDS_A_LINE apart; each piece of evidence is a span."""
    lines: list[Line] = []
    places: dict[str, int] = {}
    for number in itertools.count(1):
        if (began := read.get(f"session_{number}_date_time")) is None:
            break
        start = datetime.strptime(began, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, said in enumerate(read.get(f"session_{number}", ())):
            places[said["dia_id"]] = len(lines)
            lines.append(Line(said["speaker"], said["text"], start + place * timedelta(seconds=SECONDS_A_LINE)))
    questions = (Question(asked["question"], _evidence(asked, places)) for asked in read["qa"])
    return Meeting(tuple(lines), tuple(question for question in questions if question.spans))


def _evidence(asked: Json, places: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    named = EVIDENCE.findall(" ".join(asked["evidence"]))
    return tuple((place, place) for place in sorted({places[name] for name in named if name in places}))


_INSERT = """
insert into messages (id, session_id, position, role, content, source, author, created_at)
select gen_random_uuid(), $1, l.position, l.role, l.content, 'api', nullif(l.author, ''), coalesce(l.created_at, now())
from unnest($2::integer[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
    as l (position, role, content, author, created_at)
"""


_TS_RANK = """
select m.position - 1 from messages m, lateral (
    select cast(replace(cast(plainto_tsquery('english', $2) as text), '&', '|') as tsquery) as words
) q, lateral (select to_tsvector('english', concat(m.author, ': ', m.content)) as text) t
where m.session_id = $1 and t.text @@ q.words
order by ts_rank_cd(t.text, q.words, 1) desc, m.position limit 50
"""


@dataclass(frozen=True, slots=True)
class Archive:
    """The database, the user whose sessions they are, and a connection past the repositories."""

    database: Database
    connection: asyncpg.Connection
    owner_id: UserId

    async def fill_session(self, lines: Iterable[Line]) -> SessionId:
        """Store the lines as a session of their own."""
        new = NewSession(owner_id=self.owner_id, agent="assistant", title="", source=Source.API, metadata={})
        session, _ = await self.database.sessions.create(new)
        said = list(lines)
        columns = zip(
            *((at, line.role, line.text, line.speaker, line.at) for at, line in enumerate(said, 1)), strict=True
        )
        await self.connection.execute(_INSERT, session.id, *(map(list, columns) if said else [[]] * 5))
        await self.connection.execute("update sessions set message_count = $2 where id = $1", session.id, len(said))
        return session.id

    async def index(self, session_id: SessionId) -> None:
        """Index the whole session."""
        while await self.database.history.index_session(session_id):
            pass

    async def ts_rank(self, session_id: SessionId, question: str) -> list[int]:
        """Return the lines, from 0, that PostgreSQL's own ranking finds, best first."""
        return [row[0] for row in await self.connection.fetch(_TS_RANK, session_id, question)]

    async def vacuum(self) -> None:
        """Give the planner its statistics."""
        await self.connection.execute(
            "vacuum (analyze) sessions, search_terms, search_blocks, messages, message_embeddings"
        )
