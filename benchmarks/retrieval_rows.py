"""Stores meetings as sessions: each line a message of its speaker, written past the turns that would answer it."""

import asyncio
from collections.abc import Iterable

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


async def open_owner(database: Database) -> UserId:
    """Return the user whose sessions they are."""
    return await database.users.get_or_create("retrieval")


async def fill_session(
    database: Database, connection: asyncpg.Connection, owner_id: UserId, lines: Iterable[Line]
) -> SessionId:
    """Store the lines as a session of their own."""
    new = NewSession(owner_id=owner_id, agent="assistant", title="", source=Source.API, metadata={})
    session, _ = await database.sessions.create(new)
    said = list(lines)
    positions, texts = list(range(1, len(said) + 1)), [line.text for line in said]
    await connection.execute(_INSERT, session.id, positions, texts, [line.speaker for line in said])
    await connection.execute("update sessions set message_count = $2 where id = $1", session.id, len(said))
    return session.id


async def index_all(database: Database, session_id: SessionId) -> int:
    """Index the whole session, letting others work in between; return how many messages."""
    total = 0
    while done := await database.history.index_session(session_id):
        total += done
        await asyncio.sleep(0)
    return total
