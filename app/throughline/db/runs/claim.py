"""Claims of runs by workers: the next runs in a fair order, their leases renewed, and given back."""

from throughline.db.connection.transactions import Statements
from throughline.db.leases import CLAIMED, HELD, RELEASED, renewal
from throughline.db.runs.events import first_event_numbers, reset_event_number, store_events
from throughline.db.statements.rows import MESSAGE_IDS, RUN_COLUMNS, run_from
from throughline.db.statements.sql import new_id, sql
from throughline.domain.events import AnswerReset, NewEvent
from throughline.domain.run import (
    Caps,
    ClaimedRun,
    ClaimedRuns,
    Claimer,
    Lease,
)

# A claim of n runs takes those that n claims of one run would take, in their order:
#
# - `expired`: runs whose lease has expired, by age. At most one of them has `spaced_attempt` attempts.
# - `waiting` finds owners with queued runs by one index probe each (a loose index scan), and does not read all of them.
# - `owners` are these in the order of their next turns. `tried` are the first of them with a run that can start now, no
#   more than needed. `heads` are their next runs: the first one of each session without a running or waiting turn.
# - `chosen`: the `level` of a head is the number of the owner's running runs when it starts. Lower levels come first.
#   Within a level, owners without a start in this claim come first, then the others in the order of their latest start.
#   `starts` are the levels of the owner's earlier starts in this claim, the latest first. A run that has started before
#   is not among them, since its time of start is kept.
# - `locked`: the first chosen runs that no other claim has locked. Of each owner at most as many runs are chosen as may
#   start. The runs that concurrent claims take are among them, so no owner exceeds its most running runs. By the array
#   PostgreSQL 15 looks them up: to join them alone, it would read all runs.
_CLAIM = """
    with recursive last_attempt as (
        select r.id, r.seq, r.attempt as tries, true as is_new from runs r
        where r.status = 'running' and r.lease_until < now() and r.claim_id is distinct from :claim_id
            and not r.id = any(cast(:held as uuid[])) and r.attempt = cast(:spaced_attempt as integer)
            and r.attempt is distinct from cast(:skipped_attempt as integer) {and_is_theirs}
        order by r.seq limit 1 for update skip locked
    ), other_attempt as (
        select r.id, r.seq, r.attempt - cast(r.claim_id is not distinct from :claim_id as integer) as tries,
            r.claim_id is distinct from :claim_id as is_new
        from runs r
        where r.status = 'running' and (r.lease_until < now() or r.claim_id = :claim_id)
            and not r.id = any(cast(:held as uuid[])) and (r.claim_id = :claim_id
                or (r.attempt is distinct from cast(:spaced_attempt as integer)
                    and r.attempt is distinct from cast(:skipped_attempt as integer)))
            {and_is_theirs}
        order by r.claim_id is distinct from :claim_id, r.seq limit cast(:most as integer) for update skip locked
    ), abandoned as (
        select a.*, count(*) filter (where a.tries >= cast(:spaced_attempt as integer))
            over (order by a.is_new, a.seq rows between unbounded preceding and 1 preceding) as last_attempts_before
        from (select * from last_attempt union all select * from other_attempt) a
    ), expired as materialized (
        select a.id, row_number() over (order by a.is_new, a.seq) as position from abandoned a
        where not a.is_new or a.tries is distinct from cast(:spaced_attempt as integer) or a.last_attempts_before = 0
        order by a.is_new, a.seq limit cast(:most as integer)
    ), wanted as materialized (
        select w.runs, w.runs * {candidates} as candidates
        from (select cast(:most as integer) - count(*) as runs from expired) w
    ), waiting as ({waiting}
    ), running as materialized (
        select r.owner_id, count(*) as runs from runs r where r.status = 'running' group by r.owner_id
    ), owners as materialized (
        select o.*, row_number() over (order by o.running, o.served_at nulls first, o.first_seq) as place from (
            select w.owner_id, coalesce(h.runs, 0) as running,
                (select max(r.started_at) from runs r where r.owner_id = w.owner_id and r.started_at is not null)
                    as served_at,
                (select min(r.seq) from runs r where r.owner_id = w.owner_id and r.status = 'queued') as first_seq
            from waiting w left join running h on h.owner_id = w.owner_id
            where w.owner_id is not null and coalesce(h.runs, 0) < :max_running_of_owner
                and (select runs from wanted) > 0
        ) o order by place
    ), tried as materialized (
        select t.*, row_number() over (order by t.place) as rank from (
            select o.* from owners o cross join lateral (
                select r.id from runs r where {is_head} order by r.seq limit 1
            ) first
            limit (select candidates from wanted)
        ) t
    ), heads as (
        select o.served_at, o.first_seq, o.owner_id, h.id, h.started_at, h.number, o.running + h.number as level
        from tried o cross join lateral (
            select q.id, q.started_at, row_number() over (order by q.seq) - 1 as number from (
                select r.id, r.seq, r.started_at from runs r where {is_head} order by r.seq
                limit least((select candidates from wanted) - o.rank + 1, :max_running_of_owner - o.running)
            ) q
        ) h
    ), placed as (
        select h.*, array_agg(h.level) filter (where h.started_at is null) over (
            partition by h.owner_id order by h.number desc rows between 1 following and unbounded following) as starts
        from heads h
    ), chosen as materialized (
        select p.id, row_number() over (
            order by p.level, coalesce(p.starts, '{{}}') || cast(-1 as bigint), p.served_at nulls first, p.first_seq
        ) as position
        from placed p order by position limit (select candidates from wanted)
    ), locked as materialized (
        select c.id, c.position from chosen c join runs r on r.id = c.id
        where r.status = 'queued' and r.id = any(array(select id from chosen))
        order by c.position limit (select runs from wanted) for update of r skip locked
    ), next as (
        select id, position from expired
        union all select l.id, l.position + (select count(*) from expired) from locked l
    ), claimed as (
        update runs r set status = 'running', {claimed},
            started_at = coalesce(r.started_at, now() + next.position * interval '1 microsecond')
        from next where r.id = next.id
        returning next.position, {run_columns}, {message_ids}
    )
    select claimed.*, contended.is_contended from (
        select (select count(*) from locked) < least((select runs from wanted), (select count(*) from chosen))
            as is_contended
    ) contended left join claimed on true order by claimed.position
"""
_CANDIDATES = "2"
"""Number of runs that a claim chooses for each one that it wants, since other claims may have locked the first ones."""

# The comparison of ids keeps the planner from `runs_of_session`, in which it would read all runs of a long session.
_IS_HEAD = """r.owner_id = o.owner_id and r.status = 'queued' and not exists (
                select 1 from runs e where e.session_id = r.session_id and e.id <> r.id
                    and e.status in ('queued', 'running', 'waiting') and (e.status <> 'queued' or e.seq < r.seq))"""


CLAIM = sql(
    _CLAIM,
    and_is_theirs="",
    is_head=_IS_HEAD,
    candidates=_CANDIDATES,
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
    is_head=_IS_HEAD,
    candidates=_CANDIDATES,
    waiting="select cast(:only_for as uuid) as owner_id",
    claimed=CLAIMED,
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


RENEW = renewal("runs", "r.cancel_requested")
STOPPED = sql("""
    select h.id from unnest(cast(:ids as uuid[])) as h(id) left join runs r on r.id = h.id
    where r.id is null or r.cancel_requested
""")
"""The runs among `ids` whose turns must stop: their cancel was requested, or they were erased."""


_GIVE_BACK = sql(
    "update runs set status = 'queued', {released}, attempt = attempt - :not_counted where {held} returning attempt",
    released=RELEASED,
    held=HELD,
)


async def claim_runs(tx: Statements, claimer: Claimer, caps: Caps) -> ClaimedRuns:
    """Claim up to `claimer.most` runs in one statement: those with an expired lease, then queued ones, fairly.

    The owner with the fewest running runs comes first; among equals the owner whose last run started longest ago.
    Within an owner the oldest run is taken. Each run that is taken counts for the next one, as if it had been claimed
    alone. Owners with `caps.running_per_owner` running runs are skipped, and sessions with a running or waiting run.
    With `only_for` only this owner's runs are claimed.

    The first unused event numbers are read after the claim, when no earlier holder can write any more.
    """
    asked: dict[str, object] = {
        "worker": claimer.worker,
        "claim_id": new_id(),
        "lease_seconds": claimer.lease_seconds,
        "held": list(claimer.held),
        "most": claimer.most,
        "skipped_attempt": claimer.skipped_attempt,
        "spaced_attempt": claimer.spaced_attempt,
        "max_running_of_owner": caps.running_per_owner,
    }
    if claimer.only_for is None:
        rows = await tx.fetch(CLAIM, **asked)
    else:
        rows = await tx.fetch(_CLAIM_OF_OWNER, only_for=claimer.only_for, **asked)
    runs = [(run_from(row), row["fence"]) for row in rows if row["id"] is not None]
    numbers = await first_event_numbers(tx, [run.id for run, fence in runs if fence > 1])
    return ClaimedRuns(
        tuple(
            ClaimedRun(run=run, lease=Lease(run.id, fence, run.session_id), next_event=numbers.get(run.id, 1))
            for run, fence in runs
        ),
        is_contended=rows[0]["is_contended"],
    )


async def give_back(tx: Statements, lease: Lease, *, counts: bool) -> NewEvent | None:
    """Put the run back into the queue, without counting the attempt unless `counts`; None if the lease is lost.

    Store the event `reset`, after which readers discard what they have seen of the attempt, and return it.
    """
    rows = await tx.fetch(_GIVE_BACK, id=lease.run_id, fence=lease.fence, not_counted=0 if counts else 1)
    if not rows:
        return None
    reset = NewEvent(await reset_event_number(tx, lease.run_id), AnswerReset(rows[0]["attempt"] + 1))
    await store_events(tx, lease.run_id, [reset])
    return reset
