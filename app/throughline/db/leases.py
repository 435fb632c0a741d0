"""Leases by the database's clock, shared by all tables of claimed work.

Such a table has `id`, `worker`, `lease_until` (null while unclaimed), `claim_id`, `fence` and `attempt`. A claim
increases the fence, and every write of a holder checks it, so a process that continues too late changes nothing. A
claim that is retried, because the server's reply was lost, finds its earlier claim by `claim_id`. How the next row is
chosen differs between tables and is part of their own statements.
"""

from collections.abc import Collection, Mapping

from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import sql
from throughline.domain.run import LeaseRenewal, RowLease

CLAIMED = """fence = fence + 1, attempt = attempt + cast(claim_id is distinct from :claim_id as integer),
        claim_id = :claim_id, worker = :worker, lease_until = now() + make_interval(secs => :lease_seconds)"""
"""SET clause of a claim: worker, end of the lease and a higher fence; a repeated claim does not count as an attempt."""

HELD = "id = :id and fence = :fence and lease_until is not null"
"""Condition under which a holder may write to its row: no later claim, and the lease not ended by its holder.

An expired lease suffices as long as no other process has claimed the row.
"""

RELEASED = "worker = null, lease_until = null"
"""SET clause that ends a lease."""


def renewal(table: str, cancel_requested: str = "false") -> Statement:
    """Return the renewal statement for a table; `cancel_requested` is an expression over its row `r`.

    Rows locked by others are returned but not extended: waiting for a lock of a stopped process would keep all leases
    from being renewed.
    """
    return sql(
        """
        with held as (
            select h.id, h.fence from unnest(cast(:ids as uuid[]), cast(:fences as integer[])) as h(id, fence)
        ), free as (
            select r.id from held h join {table} r on r.id = h.id and r.fence = h.fence
            where r.lease_until is not null for no key update of r skip locked
        ), renewed as (
            update {table} r set lease_until = now() + make_interval(secs => :lease_seconds)
            from free where r.id = free.id returning r.id, {cancel_requested} as cancel_requested
        )
        select r.id, r.fence, coalesce(n.cancel_requested, {cancel_requested}) as cancel_requested,
            n.id is not null as is_renewed
        from held h join {table} r on r.id = h.id and r.fence = h.fence and r.lease_until is not null
        left join renewed n on n.id = r.id
    """,
        table=table,
        cancel_requested=cancel_requested,
    )


async def renew_leases(
    tx: Statements, statement: Statement, leases: Collection[RowLease], lease_seconds: float
) -> Mapping[RowLease, LeaseRenewal]:
    """Extend the leases that are still valid and return the result for each; lost leases are left out."""
    rows = await tx.fetch(
        statement,
        ids=[lease.id for lease in leases],
        fences=[lease.fence for lease in leases],
        lease_seconds=lease_seconds,
    )
    found = {(row["id"], row["fence"]): LeaseRenewal(row["cancel_requested"], row["is_renewed"]) for row in rows}
    return {lease: found[lease.id, lease.fence] for lease in leases if (lease.id, lease.fence) in found}
