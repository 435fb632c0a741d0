"""The lease for summaries on demand: at most one is written per session, across all processes.

The lease is stored in columns of the session, so that no lock and no connection is held during the model call. It
expires by the database's clock unless renewed, as after a crash.
"""

from uuid import UUID

from throughline.db.connection.transactions import Statements
from throughline.db.statements.locks import lock_session
from throughline.db.statements.sql import sql
from throughline.domain.errors import SummaryInProgress
from throughline.domain.ids import SessionId
from throughline.domain.summary import SummaryLease

_HOLDER = sql("""
    select s.summarizing_id, s.summarizing_since from sessions s
    where s.id = :session_id and s.summarizing_id <> :lease_id and s.summarizing_until > now()
""")
_TAKE = sql("""
    update sessions set summarizing_id = :lease_id, summarizing_since = now(),
        summarizing_until = now() + make_interval(secs => :seconds)
    where id = :session_id
""")
_RENEW = sql("""
    update sessions set summarizing_until = now() + make_interval(secs => :seconds)
    where id = :session_id and summarizing_id = :lease_id returning id
""")
_RELEASE = sql("""
    update sessions set summarizing_id = null, summarizing_since = null, summarizing_until = null
    where id = :session_id and summarizing_id = :lease_id
""")


async def take_lease(tx: Statements, session_id: SessionId, lease_id: UUID, seconds: float) -> SummaryLease:
    """Take the session's lease for `seconds`, if it is free, expired or already held as `lease_id`.

    Raises SummaryInProgress if another request holds it, and NotFound.
    """
    await lock_session(tx, session_id)
    holders = await tx.fetch(_HOLDER, session_id=session_id, lease_id=lease_id)
    if holders:
        request_id, since = holders[0]["summarizing_id"], holders[0]["summarizing_since"]
        raise SummaryInProgress(
            f"A summary of session {session_id} is being written already: {request_id}, asked for at "
            f"{since.isoformat()}. Wait for it: GET /v1/sessions/{session_id}/summaries will show it.",
            summary_request_id=str(request_id),
        )
    await tx.fetch(_TAKE, session_id=session_id, lease_id=lease_id, seconds=seconds)
    return SummaryLease(id=lease_id, session_id=session_id)


async def renew_lease(tx: Statements, lease: SummaryLease, seconds: float) -> bool:
    """Extend the lease; return False if another request has taken it."""
    return bool(await tx.fetch(_RENEW, session_id=lease.session_id, lease_id=lease.id, seconds=seconds))


async def release_lease(tx: Statements, lease: SummaryLease) -> None:
    """Release the lease, so that the next request can take it; do nothing if another request has taken it."""
    await tx.fetch(_RELEASE, session_id=lease.session_id, lease_id=lease.id)
