"""Deleting what has served its time, a small batch in a statement. Messages, runs and adopted summaries are kept."""

from dataclasses import dataclass

from app.db.connection.transactions import Transactions
from app.db.statements.sql import sql
from app.domain.ids import StretchId

RUNS_AT_ONCE = 50
"""Runs whose events go in one statement, always all of a run's: a reader finds the whole stream or none of it."""

ROWS_AT_ONCE = 500

_MADE_BEFORE = """
    cast(lpad(to_hex(cast(extract(epoch from now() - make_interval(hours => :hours)) * 1000 as bigint)), 12, '0')
        || '00000000000000000000' as uuid)"""
# Ids are UUIDv7: the first 48 bits are the milliseconds of their making. What is old stands first in the index.

_DELETE_EVENTS = sql(
    """
    with old as (
        select distinct e.run_id from run_events e
        where e.run_id < {made_before} and not exists (
            select 1 from runs r where r.id = e.run_id
                and (r.finished_at is null or r.finished_at > now() - make_interval(hours => :hours)))
        limit :runs
    ), free as (
        select e.run_id, e.seq from run_events e where e.run_id in (select run_id from old) for update skip locked
    ), gone as (
        delete from run_events e using free where e.run_id = free.run_id and e.seq = free.seq returning e.run_id
    )
    select count(distinct run_id) as units from gone
""",
    made_before=_MADE_BEFORE,
)
_DELETE_STRETCHES = sql(
    """
    with looked_at as (
        select t.id, t.session_id from summaries t
        where t.id > :after and t.id < {made_before} order by t.id limit :rows
    ), free as (
        select t.id from summaries t join looked_at l on l.id = t.id join sessions s on s.id = l.session_id
        where s.updated_at < now() - make_interval(hours => :hours)
            and not exists (
                select 1 from summary_versions v where v.session_id = l.session_id and l.id = any(v.stretch_ids))
            and not exists (
                select 1 from runs r where r.session_id = l.session_id and r.status in ('queued', 'running'))
        for update of t skip locked
    ), gone as (
        delete from summaries t using free where t.id = free.id returning t.id
    )
    select (select count(*) from gone) as units, (select count(*) from looked_at) as looked_at,
        (select id from looked_at order by id desc limit 1) as last_id
""",
    made_before=_MADE_BEFORE,
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
        select l.id from throughline_jobs.pgqueuer_log l
        where l.created < now() - make_interval(hours => :hours) order by l.created limit :rows for update skip locked
    ), gone as (
        delete from throughline_jobs.pgqueuer_log l using free where l.id = free.id returning l.id
    )
    select count(*) as units from gone
""")
_DELETE_JOBS = sql("""
    with free as (
        select j.id from throughline_jobs.pgqueuer j
        where j.status in ('queued', 'failed') and j.created < now() - make_interval(hours => :hours)
        limit :rows for update skip locked
    ), gone as (
        delete from throughline_jobs.pgqueuer j using free where j.id = free.id returning j.id
    )
    select count(*) as units from gone
""")


@dataclass(frozen=True, slots=True)
class Looked:
    """What a batch of a walk through a table came to; `last` is where to go on, None at the end."""

    deleted: int
    last: StretchId | None


class RetentionRepository:
    """Each method deletes one batch and returns how much that was. Rows that others hold are passed over."""

    def __init__(self, transactions: Transactions) -> None:
        """Work through `transactions`; each batch is a transaction of its own."""
        self._transactions = transactions

    async def delete_events(self, hours: int) -> int:
        """Delete the events of up to RUNS_AT_ONCE runs that ended longer ago, or are erased; return of how many."""
        rows = await self._transactions.fetch(_DELETE_EVENTS, hours=hours, runs=RUNS_AT_ONCE)
        return int(rows[0]["units"])

    async def delete_stretches(self, hours: int, after: StretchId) -> Looked:
        """Look at the next ROWS_AT_ONCE older stretches; delete those in no version of their session's summary.

        Only of sessions at rest: nobody is about to adopt one. Merged stretches stay, earlier versions name them.
        """
        rows = await self._transactions.fetch(_DELETE_STRETCHES, hours=hours, after=after, rows=ROWS_AT_ONCE)
        found = rows[0]
        last = StretchId(found["last_id"]) if found["looked_at"] == ROWS_AT_ONCE else None
        return Looked(deleted=int(found["units"]), last=last)

    async def delete_prepared(self) -> int:
        """Delete up to ROWS_AT_ONCE prepared versions that build on one no longer in use: none of them is adopted."""
        rows = await self._transactions.fetch(_DELETE_PREPARED, rows=ROWS_AT_ONCE)
        return int(rows[0]["units"])

    async def delete_job_log(self, hours: int) -> int:
        """Delete up to ROWS_AT_ONCE lines of what became of jobs."""
        rows = await self._transactions.fetch(_DELETE_JOB_LOG, hours=hours, rows=ROWS_AT_ONCE)
        return int(rows[0]["units"])

    async def delete_jobs(self, hours: int) -> int:
        """Delete up to ROWS_AT_ONCE jobs that nobody has done in all that time, such as those of a later version."""
        rows = await self._transactions.fetch(_DELETE_JOBS, hours=hours, rows=ROWS_AT_ONCE)
        return int(rows[0]["units"])
