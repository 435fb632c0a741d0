"""Claims of runs by workers: the next run in a fair order, its lease renewed, and given back."""

from throughline.db.connection.transactions import Statements
from throughline.db.leases import CLAIMED, HELD, RELEASED, renewal
from throughline.db.runs.events import next_event, store_events
from throughline.db.statements.rows import MESSAGE_IDS, RUN_COLUMNS, run_from
from throughline.db.statements.sql import new_id, sql
from throughline.domain.events import AnswerReset, NewEvent
from throughline.domain.run import (
    Caps,
    ClaimedRun,
    Claimer,
    Lease,
)

# `waiting` finds owners with queued runs by one index probe each (a loose index scan), without reading all queued runs.
# `fair` tries these owners in order and stops at the first one with a run to claim, so no further rows are locked.
_CLAIM = """
    with recursive expired as (
        select r.id from runs r where r.status = 'running' and (r.lease_until < now() or r.claim_id = :claim_id)
            and not r.id = any(cast(:held as uuid[]))
            and (r.claim_id = :claim_id or r.attempt is distinct from cast(:skipped_attempt as integer))
            {and_is_theirs}
        order by r.claim_id is distinct from :claim_id, r.seq limit 1 for update skip locked
    ), waiting as ({waiting}
    ), held as materialized (
        select r.owner_id, count(*) as running from runs r where r.status = 'running' group by r.owner_id
    ), owners as materialized (
        select w.owner_id from waiting w left join held h on h.owner_id = w.owner_id
        where w.owner_id is not null and coalesce(h.running, 0) < :max_running_of_owner
        order by coalesce(h.running, 0),
            (select max(r.started_at) from runs r where r.owner_id = w.owner_id and r.started_at is not null)
                nulls first,
            (select min(r.seq) from runs r where r.owner_id = w.owner_id and r.status = 'queued')
    ), fair as (
        select head.id from owners o cross join lateral (
            select r.id from runs r where r.owner_id = o.owner_id and r.status = 'queued' and not exists (
                select 1 from runs e where e.session_id = r.session_id
                    and (e.status in ('running', 'waiting') or (e.status = 'queued' and e.seq < r.seq)))
            order by r.seq limit 1 for update skip locked
        ) head limit 1
    ), next as (
        select id from expired
        union all select id from fair where not exists (select 1 from expired) limit 1
    )
    update runs r set status = 'running', {claimed}, started_at = coalesce(r.started_at, now())
    from next where r.id = next.id
    returning {run_columns}, {message_ids}
"""


CLAIM = sql(
    _CLAIM,
    and_is_theirs="",
    waiting="""
        (select r.owner_id from runs r where r.status = 'queued' order by r.owner_id limit 1)
        union all
        select (select r.owner_id from runs r where r.status = 'queued' and r.owner_id > w.owner_id
            order by r.owner_id limit 1)
        from waiting w where w.owner_id is not null""",
    claimed=CLAIMED,
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


_CLAIM_OF_OWNER = sql(
    _CLAIM,
    and_is_theirs="and r.owner_id = :only_for",
    waiting="select cast(:only_for as uuid) as owner_id",
    claimed=CLAIMED,
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


RENEW = renewal("runs", "r.cancel_requested")


_GIVE_BACK = sql(
    "update runs set status = 'queued', {released}, attempt = attempt - :not_counted where {held} returning attempt",
    released=RELEASED,
    held=HELD,
)


async def claim_next(tx: Statements, claimer: Claimer, caps: Caps) -> ClaimedRun | None:
    """Claim a run with an expired lease, else the first queued run of a session, fairly between owners.

    The owner with the fewest running runs comes first; among equals the owner whose last run started longest ago.
    Within an owner the oldest run is taken. Owners with `caps.running_per_owner` running runs are skipped, and sessions
    with a running run. With `only_for` only this owner's runs are claimed. Returns None if no run can be claimed.

    The first unused event number is read after the claim, when no earlier holder can write any more.
    """
    asked: dict[str, object] = {
        "worker": claimer.worker,
        "claim_id": new_id(),
        "lease_seconds": claimer.lease_seconds,
        "held": list(claimer.held),
        "skipped_attempt": claimer.skipped_attempt,
        "max_running_of_owner": caps.running_per_owner,
    }
    if claimer.only_for is None:
        rows = await tx.fetch(CLAIM, **asked)
    else:
        rows = await tx.fetch(_CLAIM_OF_OWNER, only_for=claimer.only_for, **asked)
    if not rows:
        return None
    run, fence = run_from(rows[0]), rows[0]["fence"]
    lease = Lease(run.id, fence, run.session_id)
    first_free = 1 if fence == 1 else await next_event(tx, run.id)
    return ClaimedRun(run=run, lease=lease, next_event=first_free)


async def give_back(tx: Statements, lease: Lease, *, counts: bool) -> tuple[NewEvent, ...] | None:
    """Put the run back into the queue, without counting the attempt unless `counts`; None if the lease is lost.

    If readers may have seen events of the attempt, store the event `reset`, after which they discard those. Return the
    stored events, empty if none was needed.
    """
    rows = await tx.fetch(_GIVE_BACK, id=lease.run_id, fence=lease.fence, not_counted=0 if counts else 1)
    if not rows:
        return None
    first_free = await next_event(tx, lease.run_id)
    if first_free == 1:
        return ()
    events = (NewEvent(first_free, AnswerReset(rows[0]["attempt"] + 1)),)
    await store_events(tx, lease.run_id, events)
    return events
