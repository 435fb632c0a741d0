"""Archived sessions that have served their time: finding them, and erasing one as its owner would."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.sessions.erasure import erase_session
from throughline.db.sessions.loaded_rows import LoadedRows
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
        and not exists (select 1 from runs r where r.session_id = s.id and r.status in ('queued', 'running'))
    for update of s skip locked
""")
# An archived session takes no message, so no turn begins between the look and the lock.


@dataclass(frozen=True, slots=True)
class ArchivedSession:
    """An archived session, and when it was last changed or had a turn: it has been archived at least since then."""

    id: SessionId
    owner_id: UserId
    updated_at: datetime


BEFORE_ALL = ArchivedSession(SessionId(UUID(int=0)), UserId(UUID(int=0)), datetime.min.replace(tzinfo=UTC))


class ArchiveRepository:
    """Archived sessions of all owners."""

    def __init__(self, transactions: Transactions, loaded: LoadedRows) -> None:
        """Work through `transactions`; rows of erased sessions are not kept in `loaded` any longer."""
        self._transactions = transactions
        self._loaded = loaded

    async def list_old(self, days: int, after: ArchivedSession) -> tuple[ArchivedSession, ...]:
        """Return up to SESSIONS_AT_ONCE that were last changed more than `days` ago, the oldest first."""
        rows = await self._transactions.fetch(
            _LIST, days=days, after_time=after.updated_at, after_id=after.id, limit=SESSIONS_AT_ONCE
        )
        return tuple(ArchivedSession(SessionId(row["id"]), UserId(row["owner_id"]), row["updated_at"]) for row in rows)

    async def erase(self, session: ArchivedSession, days: int) -> bool:
        """Erase the session if it is as it was listed; False where somebody uses it, or has brought it back.

        Raises SessionBusy: another session of the owner, which quotes this one, has a turn under way.
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
