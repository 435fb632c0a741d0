"""The claim of one run as a statement of its own: what a claim of several runs is compared with."""

from throughline.db.leases import CLAIMED
from throughline.db.statements.sql import sql

CLAIM_ONE = sql(
    """
    with recursive expired as (
        select r.id from runs r where r.status = 'running' and (r.lease_until < now() or r.claim_id = :claim_id)
            and not r.id = any(cast(:held as uuid[]))
            and (r.claim_id = :claim_id or r.attempt is distinct from cast(:skipped_attempt as integer))
                    order by r.claim_id is distinct from :claim_id, r.seq limit 1 for update skip locked
    ), waiting as (
        (select r.owner_id from runs r where r.status = 'queued' order by r.owner_id limit 1)
        union all
        select (select r.owner_id from runs r where r.status = 'queued' and r.owner_id > w.owner_id
            order by r.owner_id limit 1)
        from waiting w where w.owner_id is not null
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
    returning r.id, r.attempt
""",
    claimed=CLAIMED,
)
