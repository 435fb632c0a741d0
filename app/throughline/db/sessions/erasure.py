"""Erasure of a session: the only way in which messages are deleted from the database."""

from dataclasses import dataclass
from enum import Enum, auto

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.copies import kept_copies
from throughline.db.sessions.quotations import hold_history
from throughline.db.sessions.redaction import redact_traces
from throughline.db.statements.rows import session_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.message import MessageCopy

POSITIONS_AT_ONCE = 20_000
"""Messages deleted per statement, so that no statement reaches its time limit."""

_LOCK_RUNS = sql("""
    select id from runs
    where session_id = :id and owner_id = :owner_id and status in ('queued', 'running', 'waiting') for update
""")
_LOCK_SESSION = sql("select message_count from sessions where id = :id and owner_id = :owner_id for update")
_ALLOW = sql("select set_config('throughline.erasure', 'on', true)")
_FORBID = sql("select set_config('throughline.erasure', '', true)")
_DELETE_MESSAGES = sql("delete from messages where session_id = :id and position > :after and position <= :through")
_BEFORE_MESSAGES = (
    sql("update sessions set summary_through_id = null, summary_through_position = 0 where id = :id"),
    sql("delete from message_pins where session_id = :id"),
    sql("delete from message_redactions where session_id = :id"),
    sql("delete from summary_versions where session_id = :id"),
    sql("delete from summaries where session_id = :id"),
    sql("delete from search_terms where session_id = :id"),
    sql("delete from search_blocks where session_id = :id"),
)
_AFTER_MESSAGES = (
    # The run's row is locked before its events are deleted, because retention may delete them concurrently.
    sql("""
        with held as materialized (select id from runs where session_id = :id for update)
        delete from run_events e using held where e.run_id = held.id
    """),
    sql("delete from runs where session_id = :id"),
    sql("delete from sessions where id = :id"),
)


class ErasureReach(Enum):
    """What an erasure reaches beside the session: quotations of it in other sessions, and copies of its messages too.

    SESSION is for a user whose other sessions go as well.
    """

    SESSION = auto()
    QUOTATIONS = auto()
    COPIES = auto()


@dataclass(frozen=True, slots=True)
class Erased:
    """What became of an erased session: its unfinished runs, copies that stay, and other sessions that changed.

    The copies are those that a user made of its messages. The other sessions lost quotations or copies.
    """

    run_ids: tuple[RunId, ...]
    kept_copies: tuple[MessageCopy, ...]
    session_ids: frozenset[SessionId]


async def erase_session(
    tx: Statements, owner_id: UserId, session_id: SessionId, reach: ErasureReach = ErasureReach.COPIES
) -> Erased:
    """Delete all rows of the session. Raises NotFound, SessionBusy.

    Runs are locked before their session, as everywhere; a worker that still writes finds its lease lost. What is
    redacted in the user's other sessions follows from `reach`; SessionBusy: one of them has an unfinished turn.
    """
    await hold_history(tx, owner_id)
    runs = await tx.fetch(_LOCK_RUNS, id=session_id, owner_id=owner_id)
    found = await tx.fetch(_LOCK_SESSION, id=session_id, owner_id=owner_id)
    if not found:
        raise session_not_found(session_id)
    kept = await kept_copies(tx, session_id)
    changed: frozenset[SessionId] = frozenset()
    if reach is not ErasureReach.SESSION:
        changed = await redact_traces(tx, owner_id, session_id, with_copies=reach is ErasureReach.COPIES)
    for statement in _BEFORE_MESSAGES:
        await tx.fetch(statement, id=session_id)
    await tx.fetch(_ALLOW)
    for after in range(0, found[0]["message_count"], POSITIONS_AT_ONCE):
        await tx.fetch(_DELETE_MESSAGES, id=session_id, after=after, through=after + POSITIONS_AT_ONCE)
    await tx.fetch(_FORBID)
    for statement in _AFTER_MESSAGES:
        await tx.fetch(statement, id=session_id)
    return Erased(tuple(RunId(row["id"]) for row in runs), kept, changed)
