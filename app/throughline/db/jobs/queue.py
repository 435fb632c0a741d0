"""Side jobs: work beside the turns that may be late, may come twice, and may be lost without harm.

A job says what to do (`kind`) and for what (`subject`, an id, never a text). Its tables are PgQueuer's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.statements.sql import sql


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do; of one kind and subject there is at most one at a time, waiting or being done."""

    kind: str
    subject: str


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A job in hand. `failures` is how often it was tried and failed, `lost` how often it was begun since and cut off.

    What cuts a job off is the end of its process, or of the connection on which it was taken. `is_continued`: what was
    done of it before is kept, and this is a further round. `rested_after` is how often it had been cut off when it was
    last put off for that.
    """

    job: Job
    failures: int = 0
    lost: int = 0
    is_continued: bool = False
    rested_after: int = 0


@dataclass(frozen=True, slots=True)
class Again:
    """A job that is not done: it goes to the end of the line with its counts, and is not taken before `delay`.

    What is continued stands behind all that is not, whenever that comes.
    """

    delay: timedelta
    failures: int = 0
    lost: int = 0
    is_continued: bool = False
    rested_after: int = 0


@dataclass(frozen=True, slots=True)
class LetGo:
    """A job that nobody tries again: it is counted among those that failed."""


Ending: TypeAlias = Again | LetGo | None
"""What becomes of a job: it goes back into the line, it has failed for good, or, None, it is done."""

Perform: TypeAlias = Callable[[TakenJob], Awaitable[Ending]]
"""Does a job, and says what becomes of it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Something done at fixed times, by one process of all. `times` is a cron expression, in UTC."""

    name: str
    times: str
    run: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class JobBook:
    """What a process can do: each kind of job, and what is done by the clock."""

    kinds: Mapping[str, Perform]
    schedules: Sequence[Schedule] = ()


ASK_AGAIN = """
    on conflict (dedupe_key) where dedupe_key is not null and status = any (array[
        cast('queued' as throughline_jobs.pgqueuer_status), cast('picked' as throughline_jobs.pgqueuer_status)
    ]) do update set headers = coalesce(job.headers, jsonb_build_object()) || jsonb_build_object('again', true)
    where job.status = 'picked'
"""
"""Where the job is there already: one that waits is left as it is, one in hand is marked (`tries.py`)."""

_ENQUEUE = sql(
    """
    with input as materialized (
        select nextval(pg_get_serial_sequence('throughline_jobs.pgqueuer', 'id')) as id
    ), put as (
        insert into throughline_jobs.pgqueuer as job (id, priority, entrypoint, payload, dedupe_key, headers, status)
        select id, 0, cast(:kind as text), cast(:payload as bytea), cast(:key as text), jsonb_build_object(), 'queued'
        from input {ask_again} returning job.id
    ), logged as (
        insert into throughline_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
        select id, 'queued', cast(:kind as text), 0 from put join input using (id)
    )
    select id from put join input using (id)
""",
    ask_again=ASK_AGAIN,
)


_WAITING = sql("""
    select entrypoint as kind, count(*) as jobs,
        greatest(extract(epoch from now() - min(greatest(created, execute_after))), 0) as oldest_seconds
    from throughline_jobs.pgqueuer where status = 'queued' group by entrypoint
""")


async def enqueue_job(tx: Statements, job: Job) -> bool:
    """Put the job in line as part of the transaction; False where it is there already, waiting or being done.

    The one way into the queue, but for the end of a turn, whose one statement has it within (`kinds.py`). A job that is
    being done is marked: it goes back into the line when it ends, for it may have looked before this is committed. The
    key is `kind:subject`, and a conflict over it aborts nothing.
    """
    rows = await tx.fetch(_ENQUEUE, kind=job.kind, payload=job.subject.encode(), key=f"{job.kind}:{job.subject}")
    return bool(rows)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The jobs of one kind that wait; `oldest_seconds` is how long one has waited that could have been taken."""

    kind: str
    jobs: int
    oldest_seconds: float


class JobQueue:
    """The way into the queue for those who have no transaction of their own."""

    def __init__(self, transactions: Transactions) -> None:
        """Work through `transactions`."""
        self._transactions = transactions

    async def enqueue(self, job: Job) -> bool:
        """Put the job in line: one statement, one round trip; False where it is there already."""
        return await enqueue_job(self._transactions, job)

    async def waiting(self) -> tuple[Waiting, ...]:
        """Return what waits, by kind; kinds of which nothing waits are left out."""
        rows = await self._transactions.fetch(_WAITING)
        return tuple(Waiting(row["kind"], row["jobs"], float(row["oldest_seconds"])) for row in rows)
