"""Archived sessions that were not changed for some days: listing them, and erasing one as its owner would."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.quotations import hold_history
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId, UserId

SESSIONS_AT_ONCE = 50

_LIST = sql("""
    select s.id, s.owner_id, s.updated_at from sessions s
    where s.archived and s.updated_at < now() - make_interval(days => :days)
        and (s.updated_at, s.id) > (:after_time, cast(:after_id as uuid))
    order by s.updated_at, s.id limit :limit
""")
_LOCK = sql("""
    select s.id from sessions s
    where s.id = :id and s.owner_id = :owner_id and s.archived
        and s.updated_at < now() - make_interval(days => :days)
        and not exists (select 1 from runs r where r.session_id = s.id and r.status in ('queued', 'running', 'waiting'))
    for update of s skip locked
""")
# An archived session accepts no messages, so no turn starts between this check and the lock.


@dataclass(frozen=True, slots=True)
class ArchivedSession:
    """An archived session; `updated_at` is the time of its last change or turn. Archiving is such a change."""

    id: SessionId
    owner_id: UserId
    updated_at: datetime


BEFORE_ALL = ArchivedSession(SessionId(UUID(int=0)), UserId(UUID(int=0)), datetime.min.replace(tzinfo=UTC))


class ArchiveRepository:
    """The archived sessions of all owners: listing old ones, and erasing one."""

    def __init__(self, transactions: Transactions, loaded: MessageCache) -> None:
        """Use `transactions`; remove the rows of erased sessions from the cache `loaded`."""
        self._transactions = transactions
        self._loaded = loaded

    async def list_old(self, days: int, after: ArchivedSession) -> tuple[ArchivedSession, ...]:
        """Return up to SESSIONS_AT_ONCE archived sessions last changed more than `days` ago, oldest first.

        They follow the session `after`; BEFORE_ALL starts with the oldest.
        """
        rows = await self._transactions.fetch(
            _LIST, days=days, after_time=after.updated_at, after_id=after.id, limit=SESSIONS_AT_ONCE
        )
        return tuple(ArchivedSession(SessionId(row["id"]), UserId(row["owner_id"]), row["updated_at"]) for row in rows)

    async def erase(self, session: ArchivedSession, days: int) -> bool:
        """Erase the session if it is still archived and was not changed for `days`.

        Return False, with nothing erased, if it was changed, is locked or has an unfinished turn. Raises SessionBusy if
        another session of the owner that quotes it has an unfinished turn.
        """
        is_erased = await self._transactions.run(lambda tx: _erase(tx, session, days))
        self._loaded.forget(session.id)
        return is_erased


async def _erase(tx: Statements, session: ArchivedSession, days: int) -> bool:
    await hold_history(tx, session.owner_id)
    if not await tx.fetch(_LOCK, id=session.id, owner_id=session.owner_id, days=days):
        return False
    await erase_session(tx, session.owner_id, session.id)
    return True
