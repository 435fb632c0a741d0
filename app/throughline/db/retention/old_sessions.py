"""Sessions that are erased after a time: archived ones, and those of requests that keep nothing.

They are listed, and erased one by one as their owner would.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.sessions.erasure import ErasureReach, erase_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.quotations import hold_history
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId

SESSIONS_AT_ONCE = 50

_LIST = """
    select s.id, s.owner_id, {since} as since from sessions s
    where {is_old} and ({since}, s.id) > (:after_time, cast(:after_id as uuid))
    order by {since}, s.id limit :limit
"""
_LOCK = """
    select s.id from sessions s
    where s.id = :id and s.owner_id = :owner_id and {is_old}
        and not exists (select 1 from runs r where r.session_id = s.id and r.status in ({unfinished}))
    for update of s skip locked
"""


@dataclass(frozen=True, slots=True)
class OldSession:
    """A session to erase; `since` is when its time began: its last change, or its expiry."""

    id: SessionId
    owner_id: UserId
    since: datetime


@dataclass(frozen=True, slots=True)
class ErasureKind:
    """Which sessions are old after a number of days: the statement that lists them, and the one that locks one."""

    listed: Statement
    locked: Statement


def _kind(is_old: str, since: str, unfinished: str) -> ErasureKind:
    listed = sql(_LIST, is_old=is_old, since=since)
    return ErasureKind(listed, sql(_LOCK, is_old=is_old, unfinished=unfinished))


# An archived session accepts no messages, so no turn starts between this check and the lock.
ARCHIVED = _kind(
    "s.archived and s.updated_at < now() - make_interval(days => :days)",
    "s.updated_at",
    "'queued', 'running', 'waiting'",
)
# What an expired session waits for can no longer come: only its request knew of it.
EXPIRED = _kind("s.expires_at < now() - make_interval(days => :days)", "s.expires_at", "'queued', 'running'")
BEFORE_ALL = OldSession(SessionId(UUID(int=0)), UserId(UUID(int=0)), datetime.min.replace(tzinfo=UTC))


class OldSessions:
    """The sessions of one kind of all owners: listing old ones, and erasing one."""

    def __init__(self, transactions: Transactions, loaded: MessageCache, kind: ErasureKind) -> None:
        """Use `transactions`; remove the rows of erased sessions from the cache `loaded`."""
        self._transactions = transactions
        self._loaded = loaded
        self._kind = kind

    async def list_old(self, days: int, after: OldSession) -> tuple[OldSession, ...]:
        """Return up to SESSIONS_AT_ONCE sessions that have been old for more than `days`, oldest first.

        They follow the session `after`; BEFORE_ALL starts with the oldest.
        """
        rows = await self._transactions.fetch(
            self._kind.listed, days=days, after_time=after.since, after_id=after.id, limit=SESSIONS_AT_ONCE
        )
        return tuple(OldSession(SessionId(row["id"]), UserId(row["owner_id"]), row["since"]) for row in rows)

    async def erase(self, session: OldSession, days: int) -> bool:
        """Erase the session if it is still old.

        Return False, with nothing erased, if it was changed, is locked or has an unfinished turn. Raises SessionBusy if
        another session of the owner that quotes it has an unfinished turn.
        """
        is_erased = await self._transactions.run(lambda tx: self._erase(tx, session, days))
        self._loaded.forget(session.id)
        return is_erased

    async def _erase(self, tx: Statements, session: OldSession, days: int) -> bool:
        await hold_history(tx, session.owner_id)
        if not await tx.fetch(self._kind.locked, id=session.id, owner_id=session.owner_id, days=days):
            return False
        # A conversation that goes on in a copy is as old as its own last message.
        await erase_session(tx, session.owner_id, session.id, ErasureReach.QUOTATIONS)
        return True
