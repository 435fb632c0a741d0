"""What recall tools quoted of other messages: finding it where it is stored, and telling what may be stored no more.

A quotation names position and session of each message in its head: `[#12, ` in the message's own session,
`[#12 in session 0198…, ` in another one of the same user. What redacts or erases holds the user's row against those
who store a quotation from another session: each of them sees all of the other, or comes before it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from throughline.context.recall_hints import OUTPUT, RECALL_TOOLS, TAG
from throughline.db.connection.statement import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import NewMessage, Role, text_of
from throughline.domain.run import Lease
from throughline.domain.text import change_texts

MARKER = "[This message was redacted.]"
LOOK_AGAIN = "The history changed while it was read: part of this was redacted or erased. Look again."

_HOLD = sql("select id from users where id = :owner_id for no key update")
_CONTENT = "coalesce(m.content, cast(m.content_blocks as text))"
_QUOTING = sql(
    """
    select m.id, m.session_id, m.position, m.run_id, m.role, m.token_count
    from sessions s join messages m on m.session_id = s.id
    where s.owner_id = :owner_id and m.role = 'tool' and m.name = any(:recall_tools) and m.id <> all(:known)
        and exists (
            select 1 from unnest(cast(:sessions as uuid[]), cast(:positions as integer[])) as q (session_id, position)
            where {content} like '%[#' || q.position || ' in session ' || q.session_id || ', %'
                or (s.id = q.session_id and {content} like '%[#' || q.position || ', %'))
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
"""A text may only look like a quotation: it is refused in turns around the redaction, and not for ever. The hour is far
more than a redaction takes from its beginning, which its time is, to its end."""

_LONGEST_REST = 1000
"""Characters of what a head says behind the session: role, names and time."""

_HEAD = re.compile(r"\[#(\d{1,9}) in session ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}), ")
_OWN_HEAD = re.compile(r"\[#(\d{1,9}), (?=user|assistant|tool)")
_OPENED, _CLOSED = f"&lt;{TAG}>", f"&lt;/{TAG}>"


@dataclass(frozen=True, slots=True)
class _Quoted:
    """A head in a recall tool's result. `is_inner`: of a quotation inside what was quoted."""

    position: int
    session_id: str
    is_marker: bool
    is_inner: bool


async def hold_history(tx: Statements, owner_id: UserId) -> None:
    """Let nobody store a quotation from another session of the user until the transaction ends; locked before runs."""
    await tx.fetch(_HOLD, owner_id=owner_id)


async def find_quoting(tx: Statements, owner_id: UserId, quoted: Sequence[Row]) -> Sequence[Row]:
    """Return the results of recall tools, in any session of the user, that quote one of the messages."""
    return await tx.fetch(
        _QUOTING,
        owner_id=owner_id,
        recall_tools=list(RECALL_TOOLS),
        known=[row["id"] for row in quoted],
        sessions=[row["session_id"] for row in quoted],
        positions=[row["position"] for row in quoted],
    )


async def find_quoting_session(tx: Statements, owner_id: UserId, session_id: SessionId) -> Sequence[Row]:
    """Return the results of recall tools, in other sessions of the user, that quote any message of the session."""
    return await tx.fetch(_QUOTING_SESSION, owner_id=owner_id, session_id=session_id, recall_tools=list(RECALL_TOOLS))


def quotes_elsewhere(lease: Lease, message: NewMessage) -> bool:
    """Whether it is a recall tool's result with messages of other sessions in it.

    A redaction in the run's own session is refused while the run goes on, so nothing is to be checked for that.
    """
    return bool(_quoted(lease, message))


async def still_quotable(tx: Statements, lease: Lease, message: NewMessage) -> NewMessage:
    """Return the message, or an error in its place where what it quotes was redacted or erased since it was read."""
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
    """Return an imported message whose quotations of its own session name `positions[old]` in place of each old one.

    What is quoted of a message that was not imported names no position: that may be another message's now.
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
    said, found = text_of(message.content), []
    depth, counted = 0, 0
    for number, head in enumerate(_HEAD.finditer(said)):
        depth += said.count(_OPENED, counted, head.start()) - said.count(_CLOSED, counted, head.start())
        counted = head.start()
        is_part = message.name == OUTPUT and number > 0  # it quotes one message
        quoted = _Quoted(
            position=int(head.group(1)),
            session_id=head.group(2),
            is_marker=_is_marker(said, head.end()),
            is_inner=is_part or depth > 0,
        )
        found.append(quoted)
    return tuple(quoted for quoted in found if quoted.session_id != str(lease.session_id))


def _is_marker(said: str, start: int) -> bool:
    """Whether the head whose rest begins at `start` stands before the words that took a redacted message's place."""
    end = said.find("]", start, start + _LONGEST_REST)
    return end >= 0 and said.startswith(f"] {MARKER}", end) and "\n" not in said[start:end]
