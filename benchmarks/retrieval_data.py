"""Conversations with questions and the lines that answer them, and the sessions that hold them.

`benchmarks.retrieval_readers` reads them; `Archive` stores and indexes them as sessions.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from throughline.context.measure import count_message
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.session import NewSession
from throughline.ports.models import TokenCounter


@dataclass(frozen=True, slots=True)
class Line:
    """What one speaker said in one go, when, if that is known, and in which role.

    An assistant's line may make `calls`. A tool's line names the tool and the call that it answers.
    """

    speaker: str
    text: str
    at: datetime | None = None
    role: str = "user"
    calls: tuple[ToolCall, ...] = ()
    tool: str | None = None
    call_id: str | None = None

    @property
    def searched(self) -> str:
        """The text that search indexes: the tool's name, the text, and the names and arguments of calls."""
        parts = (self.tool, self.text, *(f"{call.name} {call.arguments}" for call in self.calls))
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the spans of lines (first and last, from 0) that answer it, and the ability that it tests, or ''."""

    text: str
    spans: tuple[tuple[int, int], ...]
    ability: str = ""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A conversation and what was asked about it."""

    lines: tuple[Line, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Halves:
    """Conversations by turns: on one half the ranking is tuned, on the other it is reported."""

    tuned: tuple[Meeting, ...] = ()
    reported: tuple[Meeting, ...] = ()

    def __add__(self, other: "Halves") -> "Halves":
        """Return each half with the other's behind it."""
        return Halves((*self.tuned, *other.tuned), (*self.reported, *other.reported))

    def of(self, half: str) -> tuple[Meeting, ...]:
        """Return the conversations of `tuned`, `reported` or `all`."""
        return {"tuned": self.tuned, "reported": self.reported, "all": (*self.tuned, *self.reported)}[half]


def chained(meetings: Sequence[Meeting], count: int) -> Iterator[Line]:
    """Yield `count` lines: one meeting after the other, and from the first again."""
    lines = itertools.chain.from_iterable(meeting.lines for meeting in itertools.cycle(meetings))
    return itertools.islice(lines, count)


_INSERT = """
insert into messages (id, session_id, position, role, content, source, author, created_at, tool_calls, tool_call_id,
    name, token_count, counter)
select gen_random_uuid(), $1, l.position, l.role, l.content, 'api', nullif(l.author, ''), coalesce(l.created_at, now()),
    cast(l.tool_calls as jsonb), l.tool_call_id, l.name, l.tokens, $11
from unnest($2::integer[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[], $9::text[],
    $10::integer[]) as l (position, role, content, author, created_at, tool_calls, tool_call_id, name, tokens)
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

    async def fill_session(self, lines: Iterable[Line], counter: TokenCounter | None = None) -> SessionId:
        """Store the lines as a session of their own, with their tokens as `counter` counts them."""
        new = NewSession(owner_id=self.owner_id, agent="assistant", title="", source=Source.API, metadata={})
        session, _ = await self.database.sessions.create(new)
        said = list(lines)
        rows = [
            (position, line.role, line.text, line.speaker, line.at, _json(line.calls), line.call_id, line.tool, tokens)
            for position, line in enumerate(said, 1)
            for tokens in [_tokens(line, counter)]
        ]
        columns = map(list, zip(*rows, strict=True)) if rows else [[]] * 9
        await self.connection.execute(_INSERT, session.id, *columns, counter.name if counter else "")
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


def _tokens(line: Line, counter: TokenCounter | None) -> int:
    if counter is None:
        return 0
    message = NewMessage(Role(line.role), line.text, Source.API, line.calls, line.call_id, line.tool, line.speaker)
    return count_message(message, counter.count)


def _json(calls: Sequence[ToolCall]) -> str:
    return json.dumps([{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls])
