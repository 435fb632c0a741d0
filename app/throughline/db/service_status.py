"""The state of the whole service, read from the database for operators: processes, runs, side jobs and deliveries.

Nothing is written, and the schema is not changed.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from throughline.db.connection.address import parse_address
from throughline.db.connection.migrations import check_known, status
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row
from throughline.db.connection.replica import ReplicaConfig, check_replica
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.front_end_storage import FrontEndStorage
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import ProcessId
from throughline.domain.errors import DatabaseUnusable
from throughline.domain.service_status import (
    HeldRuns,
    Process,
    ProcessKind,
    ProcessReport,
    ProcessState,
    QueueState,
    ServiceStatus,
    WorkQueue,
)

# The table of running processes: each process updates its row regularly and deletes it when it ends.
#
# All times are by the database's clock, because machines' clocks may differ.

HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 15.0
"""Age of a process's last heartbeat from which it may be dead: two heartbeats were missed."""

_HEARTBEAT = sql("""
    insert into processes as p (
        id, kind, name, version, started_at, heartbeat_at, concurrency, open_turns, jobs_in_hand,
        is_claiming, is_listening)
    values (:id, :kind, :name, :version, now() - make_interval(secs => :up_seconds), now(), :concurrency, :open_turns,
        :jobs_in_hand, :is_claiming, :is_listening)
    on conflict (id) do update set heartbeat_at = excluded.heartbeat_at, concurrency = excluded.concurrency,
        open_turns = excluded.open_turns, jobs_in_hand = excluded.jobs_in_hand, is_claiming = excluded.is_claiming,
        is_listening = excluded.is_listening
""")
_FORGET = sql("delete from processes where id = :id")
_COUNT_CLAIMING = sql("""
    select count(*) as claiming from processes p
    where p.is_claiming and p.heartbeat_at > now() - make_interval(secs => :silent_seconds)
""")


class ProcessRepository:
    """Storage of the heartbeats of processes, and the number of processes that claim runs."""

    def __init__(self, transactions: Transactions) -> None:
        """Use `transactions`, which should not share the requests' pool: a busy process must not look dead."""
        self._transactions = transactions

    async def heartbeat(self, process: Process, state: ProcessState, *, up_seconds: float) -> None:
        """Store a heartbeat: that the process is alive, and its current work."""
        await self._transactions.fetch(
            _HEARTBEAT,
            id=process.id,
            kind=process.kind.value,
            name=process.name,
            version=process.version,
            up_seconds=up_seconds,
            **asdict(state),
        )

    async def forget(self, process_id: ProcessId) -> None:
        """Delete the row of a process that ends."""
        await self._transactions.fetch(_FORGET, id=process_id)

    async def count_claiming(self) -> int:
        """Return how many processes claim runs now, by their heartbeats of the last SILENT_SECONDS."""
        rows = await self._transactions.fetch(_COUNT_CLAIMING, silent_seconds=SILENT_SECONDS)
        return int(rows[0]["claiming"])


_SCHEMA = sql("select version_num from alembic_version")
_ONLY_READ = sql("set transaction isolation level repeatable read, read only")
_PROCESSES = sql("""
    select p.*, extract(epoch from now() - p.started_at)::float8 as up_seconds,
        extract(epoch from now() - p.heartbeat_at)::float8 as since_heartbeat_seconds,
        p.heartbeat_at < now() - make_interval(secs => :silent_seconds) as is_silent
    from processes p order by p.kind, p.started_at, p.id
""")
_QUEUED = sql("""
    select count(*) as waiting, extract(epoch from now() - min(r.created_at))::float8 as oldest_seconds
    from runs r where r.status = 'queued'
""")
_HELD = sql("""
    select coalesce(r.worker, '') as worker, count(*) as runs, count(*) filter (where r.lease_until < now()) as expired,
        extract(epoch from min(r.lease_until) - now())::float8 as lease_seconds,
        extract(epoch from now() - min(r.started_at))::float8 as oldest_seconds
    from runs r where r.status = 'running' group by 1 order by 3 desc, 1
""")
_JOBS = sql("""
    with queue as (
        select j.kind, count(*) filter (where j.lease_until is null) as waiting,
            min(j.due_at) filter (where j.lease_until is null) as due_at,
            count(*) filter (where j.lease_until is null and j.failures > 0) as retrying,
            count(*) filter (where j.lease_until is not null) as in_hand
        from jobs j group by 1
    ), failed as (
        select f.kind, count(*) as failed from failed_jobs f
        where f.failed_at > now() - interval '24 hours' group by 1
    )
    select kind, coalesce(q.waiting, 0) as waiting, coalesce(q.retrying, 0) as retrying,
        coalesce(q.in_hand, 0) as in_hand, coalesce(f.failed, 0) as failed,
        case when q.due_at is not null then extract(epoch from now() - least(q.due_at, now()))::float8 end
            as oldest_seconds
    from queue q full join failed f using (kind) order by kind
""")
READ = PoolConfig(size=1, timeout_seconds=5.0)


class StatusRepository:
    """The service's state, for a process that has the database open."""

    def __init__(self, transactions: Transactions, front_ends: Sequence[FrontEndStorage]) -> None:
        """Use `transactions`; `front_ends` name the tables with deliveries."""
        self._transactions = transactions
        self._front_ends = front_ends

    async def read(self) -> ServiceStatus:
        """Return the service's state as one consistent snapshot."""
        return await self._transactions.run(lambda tx: _read(tx, self._front_ends))


async def read_service_status(
    url: str, front_ends: Sequence[FrontEndStorage] = (), replica: ReplicaConfig | None = None
) -> ServiceStatus:
    """Return the service's state from the database at `url`, as one consistent snapshot, and that of its replica.

    Raises DatabaseUnavailable, and DatabaseUnusable if the schema's revision is not this version's.
    """
    await _check_schema(url)
    pool = ConnectionPool(parse_address(url), READ)
    try:
        transactions = Transactions(pool)
        found = await StatusRepository(transactions, front_ends).read()
        return found if replica is None else replace(found, replica=await check_replica(replica, transactions))
    finally:
        await pool.close()


async def _check_schema(url: str) -> None:
    found = await status(url)
    check_known(found.current)
    if found.current is None or not found.is_current:
        raise DatabaseUnusable(
            f"The database has schema revision {found.current or 'none'}, this version reads {found.head}. "
            "Run `throughline db upgrade`, or ask with the version that the service runs."
        )


async def _read(tx: Statements, front_ends: Sequence[FrontEndStorage]) -> ServiceStatus:
    await tx.fetch(_ONLY_READ)
    schema = await tx.fetch(_SCHEMA)
    processes = await tx.fetch(_PROCESSES, silent_seconds=SILENT_SECONDS)
    queued, held = await tx.fetch(_QUEUED), await tx.fetch(_HELD)
    jobs = await tx.fetch(_JOBS)
    deliveries = [row for each in front_ends for row in await tx.fetch(each.deliveries)]
    return ServiceStatus(
        schema=schema[0]["version_num"],
        processes=tuple(_noted_from(row) for row in processes),
        queued=_line_from(queued[0]),
        held=tuple(HeldRuns(**row) for row in held),
        jobs=_work_from(jobs),
        slack=next(iter(_work_from(deliveries)), None),
    )


def _noted_from(row: Row) -> ProcessReport:
    return ProcessReport(
        process=Process(ProcessId(row["id"]), ProcessKind(row["kind"]), row["name"], row["version"]),
        state=ProcessState(
            concurrency=row["concurrency"],
            open_turns=row["open_turns"],
            jobs_in_hand=row["jobs_in_hand"],
            is_claiming=row["is_claiming"],
            is_listening=row["is_listening"],
        ),
        started_at=row["started_at"],
        heartbeat_at=row["heartbeat_at"],
        up_seconds=row["up_seconds"],
        since_heartbeat_seconds=row["since_heartbeat_seconds"],
        is_silent=row["is_silent"],
    )


def _line_from(row: Row) -> QueueState:
    return QueueState(row["waiting"], row["oldest_seconds"])


def _work_from(rows: Sequence[Row]) -> tuple[WorkQueue, ...]:
    return tuple(
        WorkQueue(row["kind"], _line_from(row), row["in_hand"], row["failed"], row["retrying"]) for row in rows
    )
