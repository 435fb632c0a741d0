"""Holding runs: claimed by the first free worker, kept by heartbeat, given back."""

from sqlalchemy import text

from app.db.rows import ANSWER_ID, RUN_COLUMNS, run_from
from app.db.run_events import next_event, store_events
from app.db.sql import sql
from app.db.transactions import Statements
from app.domain.events import EventType
from app.domain.run import ClaimedRun, Lease
from app.turn.ports import Claimer, NewEvent, Pulse

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
_BEAT = text("""
    update runs set lease_until = now() + make_interval(secs => :lease_seconds)
    where id = :run_id and fence = :fence and status = 'running'
    returning cancel_requested
""")
_GIVE_BACK = text("""
    update runs set status = 'queued', lease_until = null, worker = null, attempt = attempt - 1
    where id = :run_id and fence = :fence and status = 'running'
    returning attempt
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
    first_free = 1 if fence == 1 else await next_event(tx, run.id)
    return ClaimedRun(run=run, lease=lease, next_event=first_free)


async def heartbeat(tx: Statements, lease: Lease, lease_seconds: float) -> Pulse:
    """Extend the lease by the database's clock, if it is still ours."""
    rows = await tx.fetch(_BEAT, run_id=lease.run_id, fence=lease.fence, lease_seconds=lease_seconds)
    return Pulse(is_ours=bool(rows), is_cancel_requested=bool(rows) and rows[0]["cancel_requested"])


async def give_back(tx: Statements, lease: Lease) -> tuple[NewEvent, ...] | None:
    """Put the run back into the line as if it had not been tried; None where the lease is gone.

    Readers who were shown something of it are told at once to forget it: returns the event that does so.
    """
    rows = await tx.fetch(_GIVE_BACK, run_id=lease.run_id, fence=lease.fence)
    if not rows:
        return None
    first_free = await next_event(tx, lease.run_id)
    if first_free == 1:
        return ()
    events = (NewEvent(first_free, EventType.RESET, {"attempt": rows[0]["attempt"] + 1}),)
    await store_events(tx, lease.run_id, events)
    return events
