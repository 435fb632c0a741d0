"""Row locks for changes of a session, always taken in this order: the run's row, then the session's.

Statements after the locks see everything that was committed before the lock was granted. A single statement would use
its one earlier snapshot.
"""

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import SESSION_COLUMNS, lease_lost, session_from, session_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import SummaryConflict
from throughline.domain.run import Lease
from throughline.domain.session import Session

_HOLD = sql("""
    select r.id from runs r
    where r.id = :run_id and r.session_id = :session_id and r.fence = :fence and r.status = 'running' for share
""")
_LOCK = sql(
    """
    select {session_columns} from sessions s
    where s.id = :session_id and s.owner_id = coalesce(cast(:owner_id as uuid), s.owner_id) for no key update
""",
    session_columns=SESSION_COLUMNS,
)


async def hold_lease(tx: Statements, session_id: SessionId, lease: Lease | None) -> None:
    """Lock the leased run until the transaction ends; do nothing without a lease. Raises LeaseLost."""
    if lease is None:
        return
    if not await tx.fetch(_HOLD, run_id=lease.run_id, session_id=session_id, fence=lease.fence):
        raise lease_lost(lease)


async def lock_session(tx: Statements, session_id: SessionId, owner_id: UserId | None = None) -> Session:
    """Lock the session's row until the transaction ends, and return the session.

    Raises NotFound, also if it belongs to another user than `owner_id` (None: any owner).
    """
    rows = await tx.fetch(_LOCK, session_id=session_id, owner_id=owner_id)
    if not rows:
        raise session_not_found(session_id)
    return session_from(rows[0])


def summary_moved(session: Session, expected_version: int) -> SummaryConflict:
    """Return the error for a session whose summary no longer has the version `expected_version`."""
    return SummaryConflict(
        f"The summary of session {session.id} is no longer at version {expected_version} but at "
        f"{session.summary_version}. Load the session again and start from what it says."
    )
