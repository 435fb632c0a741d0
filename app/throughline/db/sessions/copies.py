"""Copies of messages in other sessions of their owner: made, linked to their originals, and found again.

A copy is linked to session and position of its original, and to those of the original's own originals. So redaction and
erasure find all copies of a message, also if a session between them is gone. A copy that a user made by importing an
export, and each copy of that, is kept: redaction and erasure name it, and leave it.

A transaction that copies locks the user's row against redaction and erasure, so that no copy is older than those.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from uuid import UUID

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.append import INSERT_COLUMNS, PORTION
from throughline.db.statements.rows import MESSAGE_TEXT, WRITTEN_COLUMNS
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import NotFound
from throughline.domain.message import MessageCopy, NewMessage, text_of
from throughline.domain.run import CopiedMessages

_KEEP_HISTORY = sql("select id from users where id = :owner_id for share")
_COPY = sql(
    """
    with given as (
        select g.id, :after + g.place as position
        from unnest(cast(:ids as uuid[])) with ordinality as g (id, place)
    ), originals as (
        select m.* from messages m join sessions s on s.id = m.session_id
        where s.id = :original_id and s.owner_id = :owner_id and m.position > :after and m.position <= :through
    ), total as (
        select count(*) as messages, coalesce(sum(token_count), 0) as tokens from originals
    ), seat as (
        update sessions s set message_count = s.message_count + total.messages,
            message_tokens = s.message_tokens + total.tokens
        from total where s.id = :session_id returning s.id
    )
    insert into messages as m ({insert_columns}, created_at)
    select g.id, seat.id, o.position, null, null, {columns}, o.created_at
    from seat cross join originals o join given g on g.position = o.position order by o.position
    returning m.position
""",
    insert_columns=INSERT_COLUMNS,
    columns=", ".join(f"o.{name}" for name in WRITTEN_COLUMNS),
)
"""Statement that copies messages to the same positions of a session that has only the messages before them."""

_LINK = sql("""
    with pairs as (
        select c.id as copy_id, o.id as original_id, o.session_id, o.position
        from unnest(cast(:copies as integer[]), cast(:originals as integer[])) as p (copy, original)
            join sessions s on s.id = :original_id and s.owner_id = :owner_id
            join messages o on o.session_id = s.id and o.position = p.original
            join messages c on c.session_id = :session_id and c.position = p.copy
    )
    insert into message_copies (message_id, original_session_id, original_position, is_kept)
    select pairs.copy_id, pairs.session_id, pairs.position, cast(:is_kept as boolean) from pairs
    union all
    select pairs.copy_id, e.original_session_id, e.original_position, e.is_kept or :is_kept
    from pairs join message_copies e on e.message_id = pairs.original_id
    on conflict do nothing
""")
_TEXTS = sql(
    """
    select m.position, m.role, md5(translate({text}
        || coalesce((select string_agg(c.call ->> 'arguments', '' order by c.place)
            from jsonb_array_elements(m.tool_calls) with ordinality as c (call, place)), ''),
        E' \\t\\r\\n\\f\\x0b', '')) as digest
    from messages m join sessions s on s.id = m.session_id
    where s.id = :original_id and s.owner_id = :owner_id order by m.position
""",
    text=MESSAGE_TEXT,
)
_FIND = sql("""
    select distinct m.id, m.session_id, m.position, m.run_id, m.role, m.token_count
    from unnest(cast(:sessions as uuid[]), cast(:positions as integer[])) as q (session_id, position)
        join message_copies c on c.original_session_id = q.session_id and c.original_position = q.position
        join messages m on m.id = c.message_id
    where not c.is_kept and m.id <> all(:known)
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
""")
_FIND_OF_SESSION = sql("""
    select distinct m.id, m.session_id, m.position, m.run_id, m.role, m.token_count
    from message_copies c join messages m on m.id = c.message_id
    where c.original_session_id = :session_id and m.session_id <> :session_id and not c.is_kept
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
""")
_KEPT = sql("""
    select distinct m.session_id, m.position
    from message_copies c join messages m on m.id = c.message_id
    where c.original_session_id = :session_id and c.is_kept
        and (cast(:position as integer) is null or c.original_position = :position)
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
    order by m.session_id, m.position
""")
_SPACE = re.compile(r"[ \t\r\n\f\v]+")


@dataclass(frozen=True, slots=True)
class CopyingSessions:
    """A session with copies, and the session of their originals, both of the same owner."""

    owner_id: UserId
    copy_id: SessionId
    original_id: SessionId


async def keep_history(tx: Statements, owner_id: UserId) -> None:
    """Lock the user's row, so that until the transaction ends no message of the user is redacted or erased.

    Callers take this lock before all others.
    """
    await tx.fetch(_KEEP_HISTORY, owner_id=owner_id)


async def copy_messages(tx: Statements, owner_id: UserId, session_id: SessionId, copied: CopiedMessages) -> None:
    """Store copies of the owner's messages as the first messages of a session that has none, and link them.

    Raises NotFound if the original messages are gone.
    """
    sessions = CopyingSessions(owner_id, session_id, copied.session_id)
    for after in range(0, copied.through_position, PORTION):
        through = min(after + PORTION, copied.through_position)
        rows = await tx.fetch(
            _COPY,
            ids=[new_id() for _ in range(through - after)],
            owner_id=owner_id,
            session_id=session_id,
            original_id=copied.session_id,
            after=after,
            through=through,
        )
        if len(rows) < through - after:
            raise NotFound(f"The conversation {copied.session_id} was erased meanwhile.")
        same = range(after + 1, through + 1)
        await link_copies(tx, sessions, dict(zip(same, same, strict=True)))


async def link_copies(
    tx: Statements, sessions: CopyingSessions, positions: Mapping[int, int], *, is_kept: bool = False
) -> None:
    """Link messages to their originals: `positions` leads from each copy's position to its original's.

    Pairs of which the owner has not both are left out. With `is_kept` redaction and erasure leave the copies.
    """
    await tx.fetch(
        _LINK,
        owner_id=sessions.owner_id,
        session_id=sessions.copy_id,
        original_id=sessions.original_id,
        copies=list(positions),
        originals=list(positions.values()),
        is_kept=is_kept,
    )


async def link_repeated(tx: Statements, sessions: CopyingSessions, messages: Sequence[NewMessage]) -> None:
    """Link the first messages of the session to those that they repeat: each to the nearest one with the same text.

    `messages` are these first messages as the client sent them. Spaces and line ends may differ.
    """
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in await tx.fetch(_TEXTS, owner_id=sessions.owner_id, original_id=sessions.original_id):
        places[row["role"], row["digest"]].append(row["position"])
    positions: dict[int, int] = {}
    shift = 0
    for place, message in enumerate(messages, start=1):
        known = places.get((message.role.value, _digest(message)), [])
        if known:
            positions[place] = _nearest(known, place + shift)
            shift = positions[place] - place
    await link_copies(tx, sessions, positions)


async def find_copies(tx: Statements, originals: Sequence[Row]) -> Sequence[Row]:
    """Return the unredacted copies of the messages `originals`, without those that a user made and `originals`."""
    return await tx.fetch(
        _FIND,
        known=[row["id"] for row in originals],
        sessions=[row["session_id"] for row in originals],
        positions=[row["position"] for row in originals],
    )


async def find_copies_of_session(tx: Statements, session_id: SessionId) -> Sequence[Row]:
    """Return the unredacted copies in other sessions of the session's messages, without those that a user made."""
    return await tx.fetch(_FIND_OF_SESSION, session_id=session_id)


async def kept_copies(tx: Statements, session_id: SessionId, position: int | None = None) -> tuple[MessageCopy, ...]:
    """Return the copies that a user made of the session's messages, or of one; redacted ones are left out."""
    rows = await tx.fetch(_KEPT, session_id=session_id, position=position)
    return tuple(MessageCopy(SessionId(UUID(str(row["session_id"]))), row["position"]) for row in rows)


def _nearest(positions: Sequence[int], wanted: int) -> int:
    """Return the one of the sorted positions that is nearest to the wanted one."""
    index = bisect_right(positions, wanted)
    return min(positions[max(index - 1, 0) : index + 1], key=lambda position: abs(position - wanted))


def _digest(message: NewMessage) -> str:
    """Return the digest that _TEXTS has for a stored message with these texts."""
    text = text_of(message.content) + "".join(call.arguments for call in message.tool_calls)
    return md5(_SPACE.sub("", text).encode(), usedforsecurity=False).hexdigest()
