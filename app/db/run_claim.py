"""Holding runs: claimed by the first free worker, kept by heartbeat, given back."""

from sqlalchemy import text

from app.db.rows import ANSWER_ID, RUN_COLUMNS, run_from
from app.db.sql import sql
from app.db.transactions import Statements
from app.domain.run import ClaimedRun, Lease
from app.turn.ports import Claimer, Pulse

_CLAIM = sql(
    """
    with next as (
        select r.id from runs r
        where (r.status = 'queued' and not exists (
                select 1 from runs o where o.session_id = r.session_id
                    and (o.status = 'running' or (o.status = 'queued' and o.seq < r.seq))))
            or (r.status = 'running' and r.lease_until < now())
        order by r.seq limit 1 for update skip locked
    )
    update runs r set status = 'running', fence = r.fence + 1, attempt = r.attempt + 1, worker = :worker,
        lease_until = now() + make_interval(secs => :lease_seconds), started_at = coalesce(r.started_at, now())
    from next where r.id = next.id
    returning {run_columns}, {answer_id}
""",
    run_columns=RUN_COLUMNS,
    answer_id=ANSWER_ID,
)
_NEXT_EVENT = text("select coalesce(max(seq), 0) + 1 as seq from run_events where run_id = :run_id")
_BEAT = text("""
    update runs set lease_until = now() + make_interval(secs => :lease_seconds)
    where id = :run_id and fence = :fence and status = 'running'
    returning cancel_requested
""")
_GIVE_BACK = text("""
    update runs set status = 'queued', lease_until = null, worker = null, attempt = attempt - 1
    where id = :run_id and fence = :fence and status = 'running'
    returning id
""")


async def claim_next(tx: Statements, claimer: Claimer) -> ClaimedRun | None:
    """Take the oldest run that is first in its session's line, or one whose lease has run out.

    The first free event number is read after the claim: no earlier holder can write any more by then.
    """
    rows = await tx.fetch(_CLAIM, worker=claimer.worker, lease_seconds=claimer.lease_seconds)
    if not rows:
        return None
    run, fence = run_from(rows[0]), rows[0]["fence"]
    lease = Lease(run_id=run.id, session_id=run.session_id, worker=claimer.worker, fence=fence)
    next_event = 1 if fence == 1 else (await tx.fetch(_NEXT_EVENT, run_id=run.id))[0]["seq"]
    return ClaimedRun(run=run, lease=lease, next_event=next_event)


async def heartbeat(tx: Statements, lease: Lease, lease_seconds: float) -> Pulse:
    """Extend the lease by the database's clock, if it is still ours."""
    rows = await tx.fetch(_BEAT, run_id=lease.run_id, fence=lease.fence, lease_seconds=lease_seconds)
    return Pulse(is_ours=bool(rows), is_cancel_requested=bool(rows) and rows[0]["cancel_requested"])


async def give_back(tx: Statements, lease: Lease) -> bool:
    """Put the run back into the line as if it had not been tried; False where the lease is gone."""
    return bool(await tx.fetch(_GIVE_BACK, run_id=lease.run_id, fence=lease.fence))
