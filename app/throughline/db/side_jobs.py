"""The queue of side jobs: work besides turns that may be late, repeated or lost without harm.

A job names its `kind` and its `subject`, which is an id and never text. Jobs are claimed and held like runs, by a lease
and a fence (db/leases.py).
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.leases import CLAIMED, HELD, RELEASED, renew_leases, renewal
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.run import LeaseRenewal, RowLease


@dataclass(frozen=True, slots=True)
class Job:
    """A job to do. For each kind and subject at most one exists at a time, waiting or under way.

    `owner_id` is the user whose share of the job slots it takes, if any.
    """

    kind: str
    subject: str
    owner_id: UserId | None = None


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A claimed job. `failures` counts its failures, `attempt` its starts without a recorded end, including this one.

    A job whose process died has a higher `attempt`. `is_continued`: this is a further round of a long job.
    """

    lease: RowLease
    job: Job
    attempt: int = 1
    failures: int = 0
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A worker's request for a job of these kinds.

    Jobs of `full_owners` are skipped, and further rounds of long jobs unless `takes_continued`. `held` are jobs the
    worker already works on, which are skipped; their leases may have expired during a database outage. From the second
    process death on, a job waits after its lease's end: first `first_pause`, then four times as long each, up to
    `longest_pause`.
    """

    worker: str
    lease_seconds: float
    kinds: Collection[str]
    full_owners: Collection[UserId] = ()
    takes_continued: bool = True
    first_pause: timedelta = timedelta(seconds=5)
    longest_pause: timedelta = timedelta(minutes=5)
    held: Collection[UUID] = ()


@dataclass(frozen=True, slots=True)
class PutBack:
    """How a job returns to the end of the queue.

    The job is not claimed before `delay` has passed. With `is_continued` it is a further round of a long job, which is
    claimed after all other jobs. `attempt` and `failures` are its new counts.
    """

    delay: timedelta = timedelta(0)
    attempt: int = 0
    failures: int = 0
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """Periodic work: a job of this kind is queued once per period, for one of all processes.

    Periods are in UTC and start `at` after each multiple of `every`.
    """

    kind: str
    every: timedelta
    run: Callable[[], Awaitable[None]]
    at: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """The waiting jobs of one kind.

    `oldest_seconds` is how long the oldest claimable one has waited, 0 if none is claimable yet.
    """

    kind: str
    jobs: int
    oldest_seconds: float


ASK_AGAIN = "on conflict (kind, subject) do update set is_asked_again = true where job.lease_until is not null"
"""ON CONFLICT clause of a statement that queues jobs: what happens if the job exists already.

A waiting job is unchanged. A job under way is queued again when it ends, since it may have read older data.
"""

_ENQUEUE = sql(
    """
    insert into jobs as job (kind, subject, owner_id) values (:kind, :subject, cast(:owner_id as uuid)) {ask_again}
    returning job.lease_until is null as is_new
""",
    ask_again=ASK_AGAIN,
)
_IS_UNDER_WAY = sql("""
    select 1 as found from jobs where kind = :kind and subject = :subject and lease_until > now()
""")
_CLAIM = sql(
    """
    with next as (
        select j.id from jobs j
        where (j.lease_until is null and j.due_at <= now() or j.lease_until < now() - make_interval(secs => case
                when j.attempt < 2 then 0
                else least(:longest_pause, :first_pause * power(4, least(j.attempt, 20) - 2)) end)
                or j.claim_id = :claim_id)
            and j.kind = any(cast(:kinds as text[])) and not j.id = any(cast(:held as uuid[]))
            and (j.owner_id is null or not j.owner_id = any(cast(:full_owners as uuid[])))
            and (:takes_continued or not j.is_continued)
        order by j.is_continued, j.seq limit 1 for update skip locked
    )
    update jobs j set {claimed}, is_asked_again = false from next where j.id = next.id
    returning j.id, j.fence, j.kind, j.subject, j.owner_id, j.attempt, j.failures, j.is_continued
""",
    claimed=CLAIMED,
)
_RENEW = renewal("jobs")
# The row is locked before it is read. A concurrent enqueue is either seen here or finds no row and inserts a new one.
_FINISH = sql(
    """
    with held as materialized (
        select id, kind, subject, is_asked_again from jobs where {held} for update
    ), failed as (
        insert into failed_jobs (kind, subject) select kind, subject from held where :has_failed
    ), gone as (
        delete from jobs j using held where j.id = held.id and not held.is_asked_again
    )
    update jobs j set {released}, seq = default, created_at = now(), due_at = now(), attempt = 0, failures = 0,
        is_continued = false
    from held where j.id = held.id and held.is_asked_again
    returning j.id
""",
    held=HELD,
    released=RELEASED,
)
_PUT_BACK = sql(
    """
    update jobs set {released}, seq = default, created_at = now(),
        due_at = now() + make_interval(secs => :delay_seconds),
        attempt = :attempt, failures = :failures, is_continued = :is_continued
    where {held}
    returning id
""",
    held=HELD,
    released=RELEASED,
)
# A new schedule waits for its next period: the join reads `job_schedules` as it was before the insert.
_PUT_DUE = sql("""
    with clock as (
        select c.kind,
            to_timestamp(floor((cast(extract(epoch from now()) as float8) - c.at) / c.every) * c.every + c.at) as period
        from unnest(cast(:kinds as text[]), cast(:every as float8[]), cast(:at as float8[])) as c(kind, every, at)
    ), begun as (
        insert into job_schedules as s (kind, period) select kind, period from clock
        on conflict (kind) do update set period = excluded.period where s.period < excluded.period
        returning s.kind
    )
    insert into jobs (kind, subject) select b.kind, '' from begun b join job_schedules known on known.kind = b.kind
    on conflict (kind, subject) do nothing
    returning id
""")
_WAITING = sql("""
    select kind, count(*) as jobs,
        greatest(extract(epoch from now() - min(greatest(created_at, due_at))), 0) as oldest_seconds
    from jobs where lease_until is null group by kind
""")


async def enqueue_job(tx: Statements, job: Job) -> bool:
    """Queue the job as part of the transaction; return False if it exists already, waiting or under way.

    All jobs are queued here, except by statements that contain ENQUEUE_SUMMARY or ENQUEUE_INDEXING. The caller calls
    `Notifier.announce_jobs` after the commit.
    """
    rows = await tx.fetch(_ENQUEUE, kind=job.kind, subject=job.subject, owner_id=job.owner_id)
    return bool(rows) and bool(rows[0]["is_new"])


async def is_under_way(tx: Statements, job: Job) -> bool:
    """Whether a worker holds an unexpired lease of the job."""
    return bool(await tx.fetch(_IS_UNDER_WAY, kind=job.kind, subject=job.subject))


class JobQueue:
    """The job queue, for callers without a transaction of their own and for workers.

    `work` is woken when a job was queued, or put back to be claimed at once.
    """

    def __init__(self, transactions: Transactions, leases: Transactions, notifier: Notifier) -> None:
        """Use `transactions`, but `leases` for renewals; notify the processes that claim jobs through `notifier`."""
        self.work = notifier.jobs
        self._notifier = notifier
        self._transactions = transactions
        self._leases = leases

    async def enqueue(self, job: Job) -> bool:
        """Queue the job in one statement; return False if it exists already."""
        is_new = await enqueue_job(self._transactions, job)
        if is_new:
            self._notifier.announce_jobs()
        return is_new

    async def claim(self, claim: JobClaim) -> TakenJob | None:
        """Claim the next due job or one whose lease has expired, None if there is none.

        New jobs come before further rounds of long jobs.
        """
        rows = await self._transactions.fetch(
            _CLAIM,
            worker=claim.worker,
            claim_id=new_id(),
            lease_seconds=claim.lease_seconds,
            kinds=list(claim.kinds),
            full_owners=list(claim.full_owners),
            takes_continued=claim.takes_continued,
            first_pause=claim.first_pause.total_seconds(),
            longest_pause=claim.longest_pause.total_seconds(),
            held=list(claim.held),
        )
        return _taken_from(rows[0]) if rows else None

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        """Let the leases end `lease_seconds` from now; the result lacks leases that are lost.

        A lease whose row is locked is in the result without having been extended.
        """
        return await renew_leases(self._leases, _RENEW, leases, lease_seconds)

    async def finish(self, lease: RowLease, *, has_failed: bool = False) -> None:
        """Remove the job from the queue unless its lease is lost; with `has_failed` record it as given up.

        A job that was queued again meanwhile returns to the queue as a new job. Idempotent.
        """
        queued_again = await self._transactions.fetch(_FINISH, id=lease.id, fence=lease.fence, has_failed=has_failed)
        if queued_again:
            self._notifier.announce_jobs()

    async def put_back(self, lease: RowLease, put_back: PutBack) -> None:
        """Put the job at the end of the queue and end its lease; do nothing if the lease is lost."""
        queued = await self._transactions.fetch(
            _PUT_BACK,
            id=lease.id,
            fence=lease.fence,
            delay_seconds=put_back.delay.total_seconds(),
            attempt=put_back.attempt,
            failures=put_back.failures,
            is_continued=put_back.is_continued,
        )
        if queued and put_back.delay <= timedelta(0):
            self._notifier.announce_jobs()

    async def put_due(self, schedules: Sequence[Schedule]) -> None:
        """Queue the schedules' jobs whose next period has begun, once for all processes.

        A schedule that was never seen before waits for its next period.
        """
        queued = await self._transactions.fetch(
            _PUT_DUE,
            kinds=[schedule.kind for schedule in schedules],
            every=[schedule.every.total_seconds() for schedule in schedules],
            at=[schedule.at.total_seconds() for schedule in schedules],
        )
        if queued:
            self._notifier.announce_jobs()

    async def waiting(self) -> tuple[WaitingJobs, ...]:
        """Return the waiting jobs by kind; kinds without waiting jobs are left out."""
        rows = await self._transactions.fetch(_WAITING)
        return tuple(WaitingJobs(row["kind"], row["jobs"], float(row["oldest_seconds"])) for row in rows)


def _taken_from(row: Row) -> TakenJob:
    return TakenJob(
        lease=RowLease(row["id"], row["fence"]),
        job=Job(row["kind"], row["subject"], None if row["owner_id"] is None else UserId(row["owner_id"])),
        attempt=row["attempt"],
        failures=row["failures"],
        is_continued=row["is_continued"],
    )


PREPARE_SUMMARY = "prepare_summary"
EMBED_MEMORIES = "embed_memories"
EMBED_HISTORY = "embed_history"
INDEX_OWNER = "index_owner"
RETENTION = "retention"
UNUSED_SUMMARIES = "unused_summaries"
ARCHIVED_SESSIONS = "archived_sessions"
INDEX_HISTORY = "index_history"
FIND_UNEMBEDDED = "find_unembedded"
EXPIRED_WAITS = "expired_waits"
EXPIRED_SESSIONS = "expired_sessions"
BY_THE_CLOCK = (
    RETENTION,
    UNUSED_SUMMARIES,
    ARCHIVED_SESSIONS,
    INDEX_HISTORY,
    FIND_UNEMBEDDED,
    EXPIRED_WAITS,
    EXPIRED_SESSIONS,
)
KINDS = (PREPARE_SUMMARY, EMBED_MEMORIES, EMBED_HISTORY, INDEX_OWNER, *BY_THE_CLOCK)
"""All job kinds that this version knows."""


def summary_job(session_id: SessionId, owner_id: UserId) -> Job:
    """Return the job that prepares the session's next summary."""
    return Job(PREPARE_SUMMARY, str(session_id), owner_id)


def index_job(owner_id: UserId) -> Job:
    """Return the job that indexes the owner's message history."""
    return Job(INDEX_OWNER, str(owner_id), owner_id)


ENQUEUE_SUMMARY = f"""
    insert into jobs as job (kind, subject, owner_id)
    select '{PREPARE_SUMMARY}', cast(due.session_id as text), due.owner_id from due {ASK_AGAIN}
"""  # noqa: S608  # our own name
"""SQL fragment that queues the summary job for each session in the CTE `due`, as `enqueue_job` does."""

ENQUEUE_INDEXING = f"""
    insert into jobs as job (kind, subject, owner_id)
    select '{INDEX_OWNER}', cast(due.owner_id as text), due.owner_id from due {ASK_AGAIN}
"""  # noqa: S608  # our own name
"""SQL fragment that queues the indexing job for the owner in the one row of the CTE `due`, as `enqueue_job` does."""
