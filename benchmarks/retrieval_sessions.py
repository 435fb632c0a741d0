"""Meetings stored as sessions: each line is a message of its speaker, written past the turns that would answer it."""

from collections.abc import Iterable
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.retrieval_data import Line
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.session import NewSession

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
