"""Quotations of stored messages in results of recall tools: finding them, and checking them before storage.

A quotation's head names position and session of the quoted message. It is `[#12, ` in the same session, and `[#12 in
session 0198…, ` in another session of the user. Redaction and erasure lock the user's row against transactions that
store quotations from other sessions. So each transaction sees the other's result or precedes it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import REDACTED_TEXT, NewMessage, Role, change_texts, text_of
from throughline.domain.run import Lease

MARKER = REDACTED_TEXT
LOOK_AGAIN = "The history changed while it was read: part of this was redacted or erased. Look again."

_HOLD = sql("select id from users where id = :owner_id for no key update")
_CONTENT = "coalesce(m.content, cast(m.content_blocks as text))"
_QUOTING = sql(
    """
    select m.id, m.session_id, m.position, m.run_id, m.role, m.token_count
    from sessions s join messages m on m.session_id = s.id
    where s.owner_id = :owner_id and m.role = 'tool' and m.name = any(:recall_tools) and m.id <> all(:known)
        and exists (
            select 1
            from regexp_matches({content}, '\\[#(\\d{{1,9}})(?: in session ([0-9a-f-]{{36}}))?, ', 'g') as h (head)
            where (coalesce(h.head[2], cast(s.id as text)), cast(h.head[1] as integer)) in (
                select cast(q.session_id as text), q.position
                from unnest(cast(:sessions as uuid[]), cast(:positions as integer[])) as q (session_id, position)))
""",
    content=_CONTENT,
)
_QUOTING_SESSION = sql(
    """
    select m.id, m.session_id, m.position, m.run_id, m.role, m.token_count
    from sessions s join messages m on m.session_id = s.id
    where s.owner_id = :owner_id and s.id <> :session_id and m.role = 'tool' and m.name = any(:recall_tools)
        and {content} like '%[#% in session ' || cast(:session_id as text) || ', %'
""",
    content=_CONTENT,
)
_KEEP_HISTORY = sql("""
    select u.id from runs r join users u on u.id = r.owner_id where r.id = :run_id for share of u
""")
_IS_STALE = sql("""
    select 1 as found where exists (
        select 1 from unnest(cast(:sessions as uuid[]), cast(:positions as integer[])) as q (session_id, position)
        join message_redactions d on d.session_id = q.session_id and d.position = q.position
        join runs r on r.id = :run_id
        where d.created_at > r.started_at - interval '1 hour'
    ) or exists (
        select 1 from unnest(cast(:read as uuid[])) as q (session_id)
        where not exists (select 1 from sessions s where s.id = q.session_id)
    )
""")
"""Whether a quoted message was redacted after the run started or its session was erased.

A text may only look like a quotation, so a redaction blocks it only in turns around that time. The hour exceeds the
duration of any redaction, whose recorded time is its start.
"""

_LONGEST_REST = 1000
"""Most characters of a quotation head after the session id: role, names and time."""

_HEAD = re.compile(r"\[#(\d{1,9}) in session ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}), ")
_OWN_HEAD = re.compile(r"\[#(\d{1,9}), (?=user|assistant|tool)")


@dataclass(frozen=True, slots=True)
class _Quoted:
    """The head of a quotation in a recall tool's result. `is_inner`: it is part of a quoted text.

    Such a head begins no line, because recall tools indent the lines of what they quote.
    """

    position: int
    session_id: str
    is_marker: bool
    is_inner: bool


async def hold_history(tx: Statements, owner_id: UserId) -> None:
    """Lock the user's row, so that until the transaction ends no result that quotes another session is stored.

    Callers take this lock before locks of runs.
    """
    await tx.fetch(_HOLD, owner_id=owner_id)


async def find_quoting(tx: Statements, owner_id: UserId, quoted: Sequence[Row]) -> Sequence[Row]:
    """Return the recall tool results, in any session of the user, that quote one of the messages `quoted`.

    Results that are themselves among `quoted` are left out.
    """
    return await tx.fetch(
        _QUOTING,
        owner_id=owner_id,
        recall_tools=list(RECALL_TOOLS),
        known=[row["id"] for row in quoted],
        sessions=[row["session_id"] for row in quoted],
        positions=[row["position"] for row in quoted],
    )


async def find_quoting_session(tx: Statements, owner_id: UserId, session_id: SessionId) -> Sequence[Row]:
    """Return the recall tool results in the user's other sessions that quote any message of the session."""
    return await tx.fetch(_QUOTING_SESSION, owner_id=owner_id, session_id=session_id, recall_tools=list(RECALL_TOOLS))


def quotes_elsewhere(lease: Lease, message: NewMessage) -> bool:
    """Whether the message is a recall tool's result that quotes messages of other sessions.

    Messages of the run's own session need no check, because they cannot be redacted while the run is unfinished.
    """
    return bool(_quoted(lease, message))


async def still_quotable(tx: Statements, lease: Lease, message: NewMessage) -> NewMessage:
    """Return the tool result, or an error result if a message it quotes was redacted or erased since it was read."""
    quoted = _quoted(lease, message)
    await tx.fetch(_KEEP_HISTORY, run_id=lease.run_id)
    shown = [head for head in quoted if not head.is_marker]
    stale = await tx.fetch(
        _IS_STALE,
        run_id=lease.run_id,
        sessions=[head.session_id for head in shown],
        positions=[head.position for head in shown],
        read=[head.session_id for head in quoted if not head.is_inner],
    )
    if not stale:
        return message
    return replace(message, content=LOOK_AGAIN, metadata={"is_error": True}, token_count=0, counter="")


def renumber_quotations(message: NewMessage, positions: Mapping[int, int]) -> NewMessage:
    """Return an imported message with the positions in its quotations of its own session replaced by `positions[old]`.

    A quoted message that was not imported gets no position, since another message may have that position now.
    """

    def head(found: re.Match[str]) -> str:
        new = positions.get(int(found.group(1)))
        return f"[#{found.group(1)} not imported, " if new is None else f"[#{new}, "

    if not positions or message.role is not Role.TOOL or message.name not in RECALL_TOOLS:
        return message
    return replace(message, content=change_texts(message.content, lambda text: _OWN_HEAD.sub(head, text)))


def _quoted(lease: Lease, message: NewMessage) -> tuple[_Quoted, ...]:
    if message.role is not Role.TOOL or message.name not in RECALL_TOOLS:
        return ()
    said = text_of(message.content)
    found = [
        _Quoted(
            position=int(head.group(1)),
            session_id=head.group(2),
            is_marker=_is_marker(said, head.end()),
            is_inner=not said.endswith("\n", 0, head.start()),
        )
        for head in _HEAD.finditer(said)
    ]
    return tuple(quoted for quoted in found if quoted.session_id != str(lease.session_id))


def _is_marker(said: str, start: int) -> bool:
    """Whether the head that continues at `start` precedes the marker text of a redacted message."""
    end = said.find("]", start, start + _LONGEST_REST)
    return end >= 0 and said.startswith(f"] {MARKER}", end) and "\n" not in said[start:end]
