"""Pins, stored separately because messages never change; set and removed on behalf of the session's owner."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.view.groups import Group, group_messages
from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Repository, Statements
from throughline.db.statements.locks import lock_session
from throughline.db.statements.rows import MESSAGE_COLUMNS, PINNED, message_from, session_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import MessageId, SessionId, UserId
from throughline.domain.errors import NotFound
from throughline.domain.message import Message, Role
from throughline.ports.storage import CheckRoom, PinGroup

REACH = 256
"""Positions searched on each side of a message for the rest of its group of calls and results.

The largest answers call about a fifth as many tools. Messages further away do not belong to the group.
"""

_KEEP = sql("select s.id from sessions s where s.id = :session_id and s.owner_id = :owner_id for key share")
_GET = sql(
    """
    select {message_columns}, {pinned} from messages m join sessions s on s.id = m.session_id
    where m.id = any(:ids) and s.id = :session_id and s.owner_id = :owner_id order by m.position
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
OUTLINE = sql("""
    select m.id, m.session_id, m.position, m.role, '' as content, m.source, m.created_at, m.tool_call_id, m.name,
        m.run_id, m.author, m.token_count, m.counter, cast('{}' as jsonb) as metadata,
        (select coalesce(jsonb_agg(jsonb_build_object('id', call.of ->> 'id', 'name', '', 'arguments', '')
                order by call.place), '[]')
            from jsonb_array_elements(m.tool_calls) with ordinality as call (of, place)) as tool_calls
    from messages m join sessions s on s.id = m.session_id
    where s.id = :session_id and s.owner_id = :owner_id and m.position >= :low and m.position <= :high
    order by m.position
""")
"""Messages without their large columns, sufficient to group calls with their results."""

_ELSEWHERE = sql("""
    select coalesce(sum(m.token_count), 0) as tokens
    from message_pins p join sessions s on s.id = p.session_id cross join lateral (
        select m.token_count from messages m where m.id = p.message_id limit 1
    ) m
    where s.id = :session_id and s.owner_id = :owner_id and p.message_id <> all(:ids)
""")
_PIN = sql("""
    insert into message_pins (message_id, session_id)
    select m.id, m.session_id from messages m join sessions s on s.id = m.session_id
    where m.id = any(:ids) and s.id = :session_id and s.owner_id = :owner_id
    order by m.id on conflict (message_id) do nothing
""")
_UNPIN = sql("""
    delete from message_pins p using sessions s
    where p.message_id = any(:ids) and p.session_id = s.id and s.id = :session_id and s.owner_id = :owner_id
""")


class PinRepository(Repository):
    """Storage of pins; implements the interface PinStore (ports/storage.py)."""

    async def find_group(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> PinGroup:
        whose = _OwnedSession(owner_id, session_id)
        return await self._transactions.run(lambda tx: _find_group(tx, whose, message_id))

    async def pin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...], check: CheckRoom
    ) -> tuple[Message, ...]:
        whose = _OwnedSession(owner_id, session_id)
        return await self._transactions.run(lambda tx: _pin(tx, whose, message_ids, check))

    async def unpin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...]
    ) -> tuple[Message, ...]:
        whose = _OwnedSession(owner_id, session_id)
        return await self._transactions.run(lambda tx: _unpin(tx, whose, message_ids))


@dataclass(frozen=True, slots=True)
class _OwnedSession:
    """A session and its owner, the parameters of all pin statements."""

    owner_id: UserId
    session_id: SessionId

    async def fetch(self, tx: Statements, statement: Statement, **parameters: object) -> Sequence[Row]:
        """Run a statement that has the parameters `owner_id` and `session_id`."""
        return await tx.fetch(statement, owner_id=self.owner_id, session_id=self.session_id, **parameters)

    async def messages(self, tx: Statements, ids: Sequence[MessageId]) -> tuple[Message, ...]:
        """Return the messages by position. Raises NotFound if one is missing."""
        found = tuple(message_from(row) for row in await self.fetch(tx, _GET, ids=list(ids)))
        missing = set(ids) - {message.id for message in found}
        if missing:
            raise NotFound(f"There is no message {min(missing)} in session {self.session_id}.")
        return found


async def _pin(tx: Statements, whose: _OwnedSession, ids: Sequence[MessageId], check: CheckRoom) -> tuple[Message, ...]:
    await lock_session(tx, whose.session_id, whose.owner_id)
    check(int((await whose.fetch(tx, _ELSEWHERE, ids=list(ids)))[0]["tokens"]))
    await whose.fetch(tx, _PIN, ids=list(ids))
    return await whose.messages(tx, ids)


async def _unpin(tx: Statements, whose: _OwnedSession, ids: Sequence[MessageId]) -> tuple[Message, ...]:
    """Delete the pins. The session's row is locked first, so that a concurrent erasure happens before or after."""
    if not await whose.fetch(tx, _KEEP):
        raise session_not_found(whose.session_id)
    await whose.fetch(tx, _UNPIN, ids=list(ids))
    return await whose.messages(tx, ids)


async def _find_group(tx: Statements, whose: _OwnedSession, message_id: MessageId) -> PinGroup:
    message = (await whose.messages(tx, (message_id,)))[0]
    group = await _outline(tx, whose, message)
    ids = [member.id for member in group.messages]
    return PinGroup(
        messages=await whose.messages(tx, ids),
        missing_results=group.results.count(None),
        is_orphan=group.head.role is Role.TOOL,
    )


async def _outline(tx: Statements, whose: _OwnedSession, message: Message) -> Group[Message]:
    """Return the message's group, from outlines of the rows around it; a message without tools is its own group."""
    if message.role is not Role.TOOL and not message.tool_calls:
        return Group(message)
    low, high = message.position - REACH, message.position + REACH
    around = [message_from(row) for row in await whose.fetch(tx, OUTLINE, low=low, high=high)]
    groups = group_messages(around)
    return next(group for group in groups if any(member.id == message.id for member in group.messages))
