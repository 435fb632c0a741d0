"""Meetings stored as sessions: each line is a message of its speaker, written past the turns that would answer it."""

from collections.abc import Iterable
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.retrieval_data import Line
from throughline.db.database import Database
from throughline.db.sessions.repository import NewSession
from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Source

_INSERT = """
insert into messages (id, session_id, position, role, content, source, author)
select gen_random_uuid(), $1, l.position, 'user', l.content, 'api', l.author
from unnest($2::integer[], $3::text[], $4::text[]) as l (position, content, author)
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
        positions, texts = list(range(1, len(said) + 1)), [line.text for line in said]
        await self.connection.execute(_INSERT, session.id, positions, texts, [line.speaker for line in said])
        await self.connection.execute("update sessions set message_count = $2 where id = $1", session.id, len(said))
        return session.id

    async def index(self, session_id: SessionId) -> None:
        """Index the whole session."""
        while await self.database.history.index_session(session_id):
            pass

    async def vacuum(self) -> None:
        """Give the planner its statistics."""
        await self.connection.execute("vacuum (analyze) search_terms, search_blocks, messages")
