"""Deleting what has served its time, a small batch in a statement. Messages, runs and adopted summaries are kept."""

from dataclasses import dataclass
from uuid import UUID

from throughline.db.connection.statement import Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.jobs.kinds import KINDS
from throughline.db.statements.sql import sql

FIRST_ID = UUID(int=0)
"""Where a walk through a table begins, in the order of ids."""

RUNS_AT_ONCE = 50
"""Runs whose events go in one statement, always all of a run's: a reader finds the whole stream or none of it."""

ROWS_AT_ONCE = 500

_MADE_BEFORE = """
    cast(lpad(to_hex(cast(extract(epoch from now() - make_interval(hours => :hours)) * 1000 as bigint)), 12, '0')
        || '00000000000000000000' as uuid)"""
# Ids are UUIDv7: the first 48 bits are the milliseconds of their making. What is old stands first in the index.

_DELETE_EVENTS = sql(
    """
    with looked_at as materialized (
        select distinct e.run_id from run_events e
        where e.run_id > :after and e.run_id < {made_before} order by e.run_id limit :runs
    ), ended as (
        select r.id from runs r where r.id = any(array(select run_id from looked_at))
            and r.finished_at < now() - make_interval(hours => :hours) for no key update of r skip locked
    ), of_ended as (
        delete from run_events e where e.run_id = any(array(select id from ended)) returning e.run_id
    ), erased as (
        select e.run_id, e.seq from run_events e
        where e.run_id = any(array(
            select l.run_id from looked_at l where not exists (select 1 from runs r where r.id = l.run_id)))
        for update of e skip locked
    ), of_erased as (
        delete from run_events e using erased x where e.run_id = x.run_id and e.seq = x.seq returning e.run_id
    )
    select (select count(distinct run_id) from of_ended) + (select count(distinct run_id) from of_erased) as units,
        (select count(*) from looked_at) as looked_at,
        (select run_id from looked_at order by run_id desc limit 1) as last_id
""",
    made_before=_MADE_BEFORE,
)
# The lock on a run's row stands for all of its events; of an erased run nobody reads any. Rows are looked up by arrays
# of ids: through the indexes, also before anything is known of how large the tables are.


def _walk(looked_at: str, free: str, gone: str) -> Statement:
    """Return the statement of one batch of a walk by id: of what was looked at, what may go, and what then goes.

    The pieces are queries of ids; `:after` is where the batch before ended, `:rows` the batch's size.
    """
    return sql(
        """
        with looked_at as materialized ({looked_at} order by id limit :rows),
            free as ({free}),
            gone as ({gone})
        select (select count(*) from gone) as units, (select count(*) from looked_at) as looked_at,
            (select id from looked_at order by id desc limit 1) as last_id
    """,
        looked_at=looked_at.format(made_before=_MADE_BEFORE),
        free=free,
        gone=gone,
    )


_FORGET_RUN_KEYS = _walk(
    looked_at="select id from runs where idempotency_key is not null and id > :after and id < {made_before}",
    free="""
        select r.id from runs r where r.id = any(array(select id from looked_at))
            and r.finished_at < now() - make_interval(hours => :hours) for no key update of r skip locked""",
    gone="update runs r set idempotency_key = null, fingerprint = '' from free where r.id = free.id returning r.id",
)
_FORGET_SESSION_KEYS = _walk(
    looked_at="select id from sessions where idempotency_key is not null and id > :after and id < {made_before}",
    free="""
        select s.id from sessions s where s.id = any(array(select id from looked_at))
        for no key update of s skip locked""",
    gone="update sessions s set idempotency_key = null, fingerprint = '' from free where s.id = free.id returning s.id",
)
_DELETE_STRETCHES = _walk(
    looked_at="select id, session_id from summaries where id > :after and id < {made_before}",
    free="""
        select t.id from summaries t join looked_at l on l.id = t.id join sessions s on s.id = l.session_id
        where s.updated_at < now() - make_interval(hours => :hours)
            and not exists (
                select 1 from summary_versions v where v.session_id = l.session_id and l.id = any(v.stretch_ids))
            and not exists (
                select 1 from runs r where r.session_id = l.session_id and r.status in ('queued', 'running'))
        for update of t skip locked""",
    gone="delete from summaries t using free where t.id = free.id returning t.id",
)
_DELETE_PREPARED = sql("""
    with free as (
        select v.id from summary_versions v join sessions s on s.id = v.session_id
        where v.state = 'prepared' and v.base_version <> s.summary_version limit :rows for update of v skip locked
    ), gone as (
        delete from summary_versions v using free where v.id = free.id returning v.id
    )
    select count(*) as units from gone
""")
_DELETE_JOB_LOG = sql("""
    with free as (
        select f.id from failed_jobs f
        where f.failed_at < now() - make_interval(hours => :hours) order by f.failed_at limit :rows
        for update skip locked
    ), gone as (
        delete from failed_jobs f using free where f.id = free.id returning f.id
    )
    select count(*) as units from gone
""")
_DELETE_JOBS = sql("""
    with free as (
        select j.id from jobs j
        where j.lease_until is null and j.kind <> all(cast(:kinds as text[]))
            and j.created_at < now() - make_interval(hours => :hours)
        limit :rows for update skip locked
    ), gone as (
        delete from jobs j using free where j.id = free.id returning j.id
    )
    select count(*) as units from gone
""")


@dataclass(frozen=True, slots=True)
class Looked:
    """What a batch came to; `last` is where to go on, None at the end. Locked rows are looked at and not deleted."""

    deleted: int
    last: UUID | None


class RetentionRepository:
    """Each method deletes one batch and says how much that was. Rows that others hold are passed over."""

    def __init__(self, transactions: Transactions) -> None:
        """Work through `transactions`; each batch is a transaction of its own."""
        self._transactions = transactions

    async def delete_events(self, hours: int, after: UUID) -> Looked:
        """Look at the next RUNS_AT_ONCE older runs that have events; delete those of ended and of erased runs.

        `deleted` counts runs: of those that ended longer ago than `hours`.
        """
        rows = await self._transactions.fetch(_DELETE_EVENTS, hours=hours, after=after, runs=RUNS_AT_ONCE)
        return _walked(rows[0], RUNS_AT_ONCE)

    async def forget_run_keys(self, hours: int, after: UUID) -> Looked:
        """Look at the next ROWS_AT_ONCE older runs with an idempotency key; forget those of ended ones."""
        rows = await self._transactions.fetch(_FORGET_RUN_KEYS, hours=hours, after=after, rows=ROWS_AT_ONCE)
        return _walked(rows[0], ROWS_AT_ONCE)

    async def forget_session_keys(self, hours: int, after: UUID) -> Looked:
        """Forget the idempotency keys of the next ROWS_AT_ONCE sessions that were made longer ago."""
        rows = await self._transactions.fetch(_FORGET_SESSION_KEYS, hours=hours, after=after, rows=ROWS_AT_ONCE)
        return _walked(rows[0], ROWS_AT_ONCE)

    async def delete_stretches(self, hours: int, after: UUID) -> Looked:
        """Look at the next ROWS_AT_ONCE older stretches; delete those in no version of their session's summary.

        Only of sessions at rest: nobody is about to adopt one. Merged stretches stay, earlier versions name them.
        """
        rows = await self._transactions.fetch(_DELETE_STRETCHES, hours=hours, after=after, rows=ROWS_AT_ONCE)
        return _walked(rows[0], ROWS_AT_ONCE)

    async def delete_prepared(self) -> Looked:
        """Delete up to ROWS_AT_ONCE prepared versions that build on one no longer in use: none of them is adopted."""
        return await self._delete(_DELETE_PREPARED)

    async def delete_job_log(self, hours: int) -> Looked:
        """Delete up to ROWS_AT_ONCE records of jobs that were given up."""
        return await self._delete(_DELETE_JOB_LOG, hours=hours)

    async def delete_jobs(self, hours: int) -> Looked:
        """Delete up to ROWS_AT_ONCE jobs of kinds that this version does not know, if nobody did them in all that time.

        What it knows waits on, however long no worker was there.
        """
        return await self._delete(_DELETE_JOBS, hours=hours, kinds=KINDS)

    async def _delete(self, statement: Statement, **parameters: object) -> Looked:
        """Run a statement that fills its batch with rows that are free: one that is not full was the last."""
        found = (await self._transactions.fetch(statement, rows=ROWS_AT_ONCE, **parameters))[0]
        return Looked(deleted=found["units"], last=FIRST_ID if found["units"] == ROWS_AT_ONCE else None)


def _walked(found: Row, most: int) -> Looked:
    return Looked(deleted=found["units"], last=found["last_id"] if found["looked_at"] == most else None)
