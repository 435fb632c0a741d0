"""Deletion of expired rows, a small batch per statement; db/partitions.py drops whole partitions.

Messages, runs and adopted summaries are kept. `turn/worker/retention.py` defines the retention periods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.front_end_storage import FrontEndStorage
from throughline.db.partitions import partitions_of_calls, partitions_of_runs
from throughline.db.sessions.erasure import ErasureReach, erase_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.quotations import hold_history
from throughline.db.side_jobs import KINDS
from throughline.db.statements.sql import sql
from throughline.db.tables.runs import MODEL_CALLS, RUN_EVENTS
from throughline.domain.basic_types import SessionId, UserId

# Sessions that are erased after a time: archived ones, and those of requests that keep nothing.
#
# They are listed, and erased one by one as their owner would.

SESSIONS_AT_ONCE = 50

_LIST = """
    select s.id, s.owner_id, {since} as since from sessions s
    where {is_old} and ({since}, s.id) > (:after_time, cast(:after_id as uuid))
    order by {since}, s.id limit :limit
"""
_LOCK = """
    select s.id from sessions s
    where s.id = :id and s.owner_id = :owner_id and {is_old}
        and not exists (select 1 from runs r where r.session_id = s.id and r.status in ({unfinished}))
    for update of s skip locked
"""


@dataclass(frozen=True, slots=True)
class OldSession:
    """A session to erase; `since` is when its time began: its last change, or its expiry."""

    id: SessionId
    owner_id: UserId
    since: datetime


@dataclass(frozen=True, slots=True)
class ErasureKind:
    """Which sessions are old after a number of days: the statement that lists them, and the one that locks one."""

    listed: Statement
    locked: Statement


def _kind(is_old: str, since: str, unfinished: str) -> ErasureKind:
    listed = sql(_LIST, is_old=is_old, since=since)
    return ErasureKind(listed, sql(_LOCK, is_old=is_old, unfinished=unfinished))


# An archived session accepts no messages, so no turn starts between this check and the lock.
ARCHIVED = _kind(
    "s.archived and s.updated_at < now() - make_interval(days => :days)",
    "s.updated_at",
    "'queued', 'running', 'waiting'",
)
# What an expired session waits for can no longer come: only its request knew of it.
EXPIRED = _kind("s.expires_at < now() - make_interval(days => :days)", "s.expires_at", "'queued', 'running'")
BEFORE_ALL = OldSession(SessionId(UUID(int=0)), UserId(UUID(int=0)), datetime.min.replace(tzinfo=UTC))


class OldSessions:
    """The sessions of one kind of all owners: listing old ones, and erasing one."""

    def __init__(self, transactions: Transactions, loaded: MessageCache, kind: ErasureKind) -> None:
        """Use `transactions`; remove the rows of erased sessions from the cache `loaded`."""
        self._transactions = transactions
        self._loaded = loaded
        self._kind = kind

    async def list_old(self, days: int, after: OldSession) -> tuple[OldSession, ...]:
        """Return up to SESSIONS_AT_ONCE sessions that have been old for more than `days`, oldest first.

        They follow the session `after`; BEFORE_ALL starts with the oldest.
        """
        rows = await self._transactions.fetch(
            self._kind.listed, days=days, after_time=after.since, after_id=after.id, limit=SESSIONS_AT_ONCE
        )
        return tuple(OldSession(SessionId(row["id"]), UserId(row["owner_id"]), row["since"]) for row in rows)

    async def erase(self, session: OldSession, days: int) -> bool:
        """Erase the session if it is still old.

        Return False, with nothing erased, if it was changed, is locked or has an unfinished turn. Raises SessionBusy if
        another session of the owner that quotes it has an unfinished turn.
        """
        is_erased = await self._transactions.run(lambda tx: self._erase(tx, session, days))
        self._loaded.forget(session.id)
        return is_erased

    async def _erase(self, tx: Statements, session: OldSession, days: int) -> bool:
        await hold_history(tx, session.owner_id)
        if not await tx.fetch(self._kind.locked, id=session.id, owner_id=session.owner_id, days=days):
            return False
        # A conversation that goes on in a copy is as old as its own last message.
        await erase_session(tx, session.owner_id, session.id, ErasureReach.QUOTATIONS)
        return True


FIRST_ID = UUID(int=0)
"""The id at which a scan through a table in id order starts; no row has it."""

RUNS_AT_ONCE = 50
"""Most runs whose events one statement deletes. A run's events are deleted together: readers find all or none."""

ROWS_AT_ONCE = 500

_MADE_BEFORE = """
    cast(lpad(to_hex(cast(extract(epoch from now() - make_interval(hours => :hours)) * 1000 as bigint)), 12, '0')
        || '00000000000000000000' as uuid)"""
# Ids are UUIDv7: the first 48 bits are the creation time in milliseconds, so old rows come first in the index.

_DELETE_EVENTS = """
    with looked_at as materialized (
        select distinct e.run_id from {table} e
        where e.run_id > :after and e.run_id < {made_before} order by e.run_id limit :rows
    ), ended as (
        select r.id from runs r where r.id = any(array(select run_id from looked_at))
            and r.finished_at < now() - make_interval(hours => :hours) for no key update of r skip locked
    ), of_ended as (
        delete from {table} e where e.run_id = any(array(select id from ended)) returning e.run_id
    ), erased as (
        select e.run_id, e.seq from {table} e
        where e.run_id = any(array(
            select l.run_id from looked_at l where not exists (select 1 from runs r where r.id = l.run_id)))
        for update of e skip locked
    ), of_erased as (
        delete from {table} e using erased x where e.run_id = x.run_id and e.seq = x.seq returning e.run_id
    )
    select (select count(distinct run_id) from of_ended) + (select count(distinct run_id) from of_erased) as units,
        (select count(*) from looked_at) as looked_at,
        (select run_id from looked_at order by run_id desc limit 1) as last_id
"""
# The lock on a run's row covers all its events; events of an erased run have no readers. Rows are looked up by arrays
# of ids, so that indexes are used even before table statistics exist.


def delete_events(table: str, *, is_cached: bool = True) -> Statement:
    """Return the statement that deletes the events of a batch of runs from one partition of run_events."""
    return replace(sql(_DELETE_EVENTS, table=table, made_before=_MADE_BEFORE), is_cached=is_cached)


def _scan_batch(looked_at: str, free: str, gone: str) -> Statement:
    """Return the statement for one batch of a scan through a table in id order.

    The three fragments are SQL that gives ids. `looked_at` are the rows to examine, `free` those of them that may be
    deleted, and `gone` the rows that it deletes or clears. `:after` is the previous batch's last id, `:rows` the batch
    size.
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


_FORGET_RUN_KEYS = _scan_batch(
    looked_at="select id from runs where idempotency_key is not null and id > :after and id < {made_before}",
    free="""
        select r.id from runs r where r.id = any(array(select id from looked_at))
            and r.idempotency_key is not null and r.finished_at < now() - make_interval(hours => :hours)
        for no key update of r skip locked""",
    gone="update runs r set idempotency_key = null, fingerprint = '' from free where r.id = free.id returning r.id",
)
_FORGET_SESSION_KEYS = _scan_batch(
    looked_at="select id from sessions where idempotency_key is not null and id > :after and id < {made_before}",
    free="""
        select s.id from sessions s where s.id = any(array(select id from looked_at)) and s.idempotency_key is not null
        for no key update of s skip locked""",
    gone="update sessions s set idempotency_key = null, fingerprint = '' from free where s.id = free.id returning s.id",
)
_DELETE_SEGMENTS = _scan_batch(
    looked_at="select id, session_id from summaries where id > :after and id < {made_before}",
    free="""
        select t.id from summaries t join looked_at l on l.id = t.id join sessions s on s.id = l.session_id
        where s.updated_at < now() - make_interval(hours => :hours)
            and not exists (
                select 1 from summary_versions v where v.session_id = l.session_id and l.id = any(v.segment_ids))
            and not exists (
                select 1 from runs r where r.session_id = l.session_id and r.status in ('queued', 'running', 'waiting'))
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
    select count(*) as units, count(*) as looked_at, cast('00000000-0000-0000-0000-000000000000' as uuid) as last_id
    from gone
""")


def delete_batch(table: str, old: str, *, key: str = "id", change: str = "") -> Statement:
    """Return the statement that deletes a batch of rows matching `old`, or applies `change` to them.

    `key` are the columns of the primary key. In `old`, `{before}` stands for the time before which rows have expired.
    The constant limit tells the planner how few rows these are: a plan made for any `rows` would read the whole table.
    """
    return sql(
        """
        with free as (
            select {key} from {table} where {old} limit :rows for update skip locked
        ), gone as (
            {verb} {table} {change} where ({key}) in (select {key} from free limit {most}) returning 1
        )
        select count(*) as units, count(*) as looked_at, cast('00000000-0000-0000-0000-000000000000' as uuid) as last_id
        from gone
    """,
        table=table,
        key=key,
        most=str(ROWS_AT_ONCE),
        old=old.format(before="now() - make_interval(hours => :hours)"),
        verb="update" if change else "delete from",
        change=change,
    )


_STATEMENTS = {
    "run_events": delete_events(RUN_EVENTS.default),
    "model_calls": delete_batch(MODEL_CALLS.default, "created_at < {before}"),
    "run_keys": _FORGET_RUN_KEYS,
    "session_keys": _FORGET_SESSION_KEYS,
    "segments": _DELETE_SEGMENTS,
    "prepared": _DELETE_PREPARED,
    "job_log": delete_batch("failed_jobs", "failed_at < {before}"),
    # Jobs of kinds that this version knows are kept, however long they wait.
    "jobs": delete_batch(
        "jobs", "lease_until is null and kind <> all(cast(:kinds as text[])) and created_at < {before}"
    ),
    "processes": delete_batch("processes", "heartbeat_at < {before}"),
    "access_tokens": delete_batch("access_tokens", "expires_at < {before}"),
}


def kind_of(name: str) -> str:
    """Return the kind of rows for metrics, where `name` is a kind or a partition of run_events."""
    return RUN_EVENTS.table if name.startswith(f"{RUN_EVENTS.table}_") else name


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch; `last` is the id to continue after, None at the end.

    `deleted` counts the rows deleted or cleared, or the runs whose events were deleted. Rows locked by other
    transactions are not among them.
    """

    deleted: int
    last: UUID | None


class RetentionRepository:
    """Deletion of expired rows in batches; rows locked by other transactions are skipped."""

    def __init__(self, transactions: Transactions, front_ends: Sequence[FrontEndStorage] = ()) -> None:
        """Use `transactions`; each batch is one transaction. `front_ends` have rows of further kinds."""
        self._transactions = transactions
        expiring = {kind: rows for each in front_ends for kind, rows in each.expiring.items()}
        self._statements = {**_STATEMENTS, **{kind: rows.batch for kind, rows in expiring.items()}}
        self.kept_hours = {kind: rows.hours for kind, rows in expiring.items()}
        """The retention period, in hours, of each kind of rows of front ends."""
        self.partitions = (partitions_of_runs(transactions), partitions_of_calls(transactions))

    async def delete(self, kind: str, hours: int, after: UUID) -> BatchResult:
        """Delete, or clear, the next batch of rows of this kind older than `hours`, after the id `after`.

        The kinds of partitioned tables are the rows of their default partitions. A partition of run_events is a kind,
        too. Events are deleted by runs, RUNS_AT_ONCE at a time. Summary segments are deleted if no summary version uses
        them and their session has no unfinished run. Prepared summaries are deleted at any age, if the summary that
        they were to replace is no longer adopted.
        """
        most = RUNS_AT_ONCE if kind_of(kind) == RUN_EVENTS.table else ROWS_AT_ONCE
        statement = self._statements.get(kind) or delete_events(kind, is_cached=False)
        found = (await self._transactions.fetch(statement, hours=hours, after=after, rows=most, kinds=list(KINDS)))[0]
        return BatchResult(deleted=found["units"], last=found["last_id"] if found["looked_at"] == most else None)
