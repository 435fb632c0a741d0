"""Side jobs of one process: their handlers, concurrency limits, and retries."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias
from uuid import UUID

import structlog

from throughline.db.search.repository import SearchRepository
from throughline.db.side_jobs import (
    EXPIRED_WAITS,
    INDEX_HISTORY,
    JobClaim,
    JobQueue,
    PutBack,
    Schedule,
    TakenJob,
    WaitingJobs,
)
from throughline.domain.basic_types import Clock, SessionId, UserId
from throughline.domain.errors import NotFound, ThroughlineError, provider_words
from throughline.domain.run import RowLease, WaitingTurns
from throughline.domain.summary import CompactionOutcome
from throughline.execution.breaker import doubled_backoff
from throughline.execution.compute_threads import work_for
from throughline.execution.error_boundary import (
    ErrorBoundary,
    Outcome,
    Raised,
    outcome_of_awaiting,
    running_concurrently,
)
from throughline.execution.lease_loop import Claims, Heartbeat, Heartbeats, LeaseLoop, LoopConfig, work_until_lost
from throughline.turn.recall.embed_missing import Rest
from throughline.turn.state import TurnDependencies
from throughline.turn.summary.prepare import is_next_due, prepare_next

EVERY_WAITING = timedelta(minutes=1)


class WaitingRuns(Protocol):
    """The storage of waiting runs."""

    async def expire_waits(self, now: datetime) -> int:
        """Queue the runs whose wait has expired at `now`, up to a limit; return how many."""
        ...


@dataclass(frozen=True, slots=True)
class ExpiredWaits:
    """The scheduled search for waits that have expired. Concurrent runs of it have the same result as one."""

    runs: WaitingRuns
    clock: Clock

    async def run(self) -> None:
        """Queue all runs whose wait has expired."""
        while queued := await self.runs.expire_waits(self.clock.now()):
            log.info("expired waits queued", runs=queued)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedule of `run`: every minute."""
        return (Schedule(EXPIRED_WAITS, EVERY_WAITING, self.run),)


class WaitingTurnsStore(Protocol):
    """The part of the storage of runs that counts queued and waiting turns."""

    async def count_waiting(self) -> Sequence[WaitingTurns]:
        """Return the number and the age of the turns that are queued, and of those that wait."""
        ...


class TurnMetrics(Protocol):
    """Metrics of waiting turns."""

    def turns_waiting(self, *, status: str, turns: int, oldest_seconds: float) -> None:
        """Record the number of turns with this status, and the age of the oldest."""
        ...


@dataclass(frozen=True, slots=True)
class WaitingTurnsReport:
    """Reads the waiting turns and records them."""

    runs: WaitingTurnsStore
    metrics: TurnMetrics

    async def record(self) -> None:
        """Record the waiting turns once."""
        for found in await self.runs.count_waiting():
            self.metrics.turns_waiting(
                status=found.status.value, turns=found.turns, oldest_seconds=found.oldest_seconds
            )


MOST_TRIES = 12
"""Failures after which a job is given up: three quarters of an hour, longer than most outages.

Code that needs the job's result queues it again.
"""

MAX_CRASHES = 6
"""Consecutive process deaths during a job after which it is given up, since it may cause them."""

OWNERS_PART = 4
"""One owner may use 1/OWNERS_PART of the job slots, however many of their sessions have jobs."""

ROUNDS_PART = 2
"""Further rounds of long jobs may use 1/ROUNDS_PART of the job slots."""

LONGEST_SILENCE_SECONDS = 60.0
"""Seconds without a claim that the database answered, after which the process is not ready."""

FIRST_END_PAUSE_SECONDS, LONGEST_END_PAUSE_SECONDS = 0.2, 5.0
"""First and longest pause between tries to store a job's end."""

WATCH_SECONDS = 15.0
AT_ONCE = timedelta(0)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NotDone:
    """A handler's result for a job that must run again, after all waiting jobs and after `delay` at the earliest.

    A job that made progress may do so without limit. One that `has_failed` is given up after MOST_TRIES failures in a
    row.
    """

    delay: timedelta = AT_ONCE
    has_failed: bool = False


Work: TypeAlias = Callable[[str], Awaitable[NotDone | None]]
"""A job handler: gets the job's subject, returns None when done. Repeating a finished job must find nothing to do."""


@dataclass(frozen=True, slots=True)
class JobRegistry:
    """The work that this process can do: a handler per job kind, and schedules.

    `reports` record metrics every WATCH_SECONDS, in each process.
    """

    handlers: Mapping[str, Work]
    schedules: Sequence[Schedule] = ()
    reports: Sequence[Callable[[], Awaitable[None]]] = ()


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """Settings for side jobs: concurrency, and the lease of `lease_seconds` for each job.

    A failed job is retried after `first_pause`, then after pauses four times as long each, up to `longest_pause`.
    """

    worker: str
    concurrency: int
    lease_seconds: float = 30.0
    poll_seconds: float = 5.0
    first_pause: timedelta = timedelta(seconds=5)
    longest_pause: timedelta = timedelta(minutes=5)


class JobMetrics(Protocol):
    """Metrics of side jobs."""

    def job_ended(self, *, kind: str, outcome: str) -> None:
        """Count a claimed job with its outcome.

        Outcomes: `done`, `continued` (more rounds follow), `failed` (will be retried), `let_go` (given up),
        `handed_back` (the process stops).
        """
        ...

    def jobs_waiting(self, *, kind: str, jobs: int, oldest_seconds: float) -> None:
        """Report the number of waiting jobs, and how long the oldest claimable one has waited."""
        ...

    def jobs_taken(self, *, is_taking: bool) -> None:
        """Report whether this process is claiming jobs at present."""
        ...


class SideJobs:
    """The side jobs of a process: it claims jobs from the queue and runs up to `concurrency` at once, while `run` runs.

    Scheduled jobs have slots of their own: there are few kinds, and at most one job of each at a time.
    """

    def __init__(self, queue: JobQueue, registry: JobRegistry, metrics: JobMetrics, config: JobsConfig) -> None:
        """Prepare; `run` starts claiming."""
        self._queue = queue
        self._metrics = metrics
        self._config = config
        self._schedules = registry.schedules
        self._reports = registry.reports
        by_the_clock = {schedule.kind: _by_the_clock(schedule) for schedule in registry.schedules}
        self._by_the_clock = frozenset(by_the_clock)
        self._handlers: Mapping[str, Work] = {**registry.handlers, **by_the_clock}
        heartbeats = Heartbeats(queue.renew, config.lease_seconds)
        self._loop: LeaseLoop[TakenJob] = LeaseLoop(self, heartbeats, queue.work, LoopConfig(config.poll_seconds))

    @property
    def is_taking(self) -> bool:
        """Whether jobs are being claimed, for readiness. Outages up to LONGEST_SILENCE_SECONDS are ignored."""
        return self._loop.has_claimed_within(LONGEST_SILENCE_SECONDS)

    @property
    def in_hand(self) -> int:
        """The number of jobs under way."""
        return len(self._loop.held)

    async def run(self) -> None:
        """Claim jobs until `close`, then wait until those under way have ended or were put back."""
        async with running_concurrently(self._watch, "watch the jobs that wait"):
            await self._loop.run()

    def close(self) -> None:
        """Claim no more jobs; those under way continue."""
        self._loop.close()

    def stop(self) -> None:
        """Claim no more jobs, stop those under way, and put them back into the queue for other processes."""
        self._loop.stop()

    async def claim(self, late: Sequence[RowLease]) -> Claims[TakenJob]:
        """Claim the next job for which a slot is free; return it, or nothing if there is no such job."""
        held = [taken for taken in self._loop.held if taken.job.kind not in self._by_the_clock]
        kinds = self._handlers.keys() if len(held) < self._config.concurrency else self._by_the_clock
        if not kinds:
            return Claims()
        rounds = sum(taken.is_continued for taken in held)
        claim = JobClaim(
            worker=self._config.worker,
            lease_seconds=self._config.lease_seconds,
            kinds=tuple(kinds),
            full_owners=self._full_owners(held),
            takes_continued=rounds < max(1, self._config.concurrency // ROUNDS_PART),
            first_pause=self._config.first_pause,
            longest_pause=self._config.longest_pause,
            held=[lease.id for lease in late],
        )
        taken = await self._queue.claim(claim)
        return Claims() if taken is None else Claims((taken,), may_have_left=True)

    async def perform(self, claimed: TakenJob, heartbeat: Heartbeat[RowLease]) -> None:
        """Run the job and store its result, unless its lease is lost."""
        await work_until_lost(self._do(claimed), heartbeat)

    async def _do(self, claimed: TakenJob) -> None:
        """Run the job and store its result, retrying until that succeeds."""
        outcome, put_back = await self._outcome(claimed)
        tries = 0
        while not await self._is_stored(claimed, outcome, put_back):
            tries += 1
            await asyncio.sleep(doubled_backoff(tries, FIRST_END_PAUSE_SECONDS, LONGEST_END_PAUSE_SECONDS))
        self._metrics.job_ended(kind=claimed.job.kind, outcome=outcome)

    async def put_back(self, claimed: TakenJob) -> None:
        """Put the job back into the queue as if it had not been claimed."""
        untried = PutBack(AT_ONCE, claimed.attempt - 1, claimed.failures, claimed.is_continued)
        await self._queue.put_back(claimed.lease, untried)
        self._metrics.job_ended(kind=claimed.job.kind, outcome="handed_back")

    def ended(self, _claimed: TakenJob) -> None:
        """Wake the loop to claim another job, since a slot is free."""
        self._queue.work.wake()

    def _full_owners(self, held: Sequence[TakenJob]) -> tuple[UserId, ...]:
        most = max(1, self._config.concurrency // OWNERS_PART)
        of_owners = Counter(taken.job.owner_id for taken in held if taken.job.owner_id is not None)
        return tuple(owner_id for owner_id, jobs in of_owners.items() if jobs >= most)

    async def _outcome(self, taken: TakenJob) -> tuple[str, PutBack | None]:
        """Run the job; return its outcome for metrics, and how it goes back into the queue, if it does."""
        if taken.attempt > MAX_CRASHES:
            log.error("job given up after crashes", kind=taken.job.kind, subject=taken.job.subject)
            return "let_go", None
        outcome: Outcome[NotDone | None] = await outcome_of_awaiting(self._handlers[taken.job.kind](taken.job.subject))
        if isinstance(outcome, Raised):
            failure = {"error": type(outcome.error).__name__, **provider_words(outcome.error)}
            return self._after_failure(taken, AT_ONCE, failure)
        match outcome.value:
            case None:
                return "done", None
            case NotDone(has_failed=True, delay=delay):
                return self._after_failure(taken, delay, {"error": "nothing achieved"})
            case NotDone(delay=delay):
                return "continued", PutBack(delay, is_continued=True)

    def _after_failure(
        self, taken: TakenJob, least: timedelta, failure: Mapping[str, str]
    ) -> tuple[str, PutBack | None]:
        fields = {"kind": taken.job.kind, "subject": taken.job.subject, **failure}
        failures = taken.failures + 1
        if failures >= MOST_TRIES:
            log.error("job given up after failures", **fields)
            return "let_go", None
        delay = max(min(self._config.first_pause * int(4 ** (failures - 1)), self._config.longest_pause), least)
        log.warning("job failed, retried after delay", delay_seconds=delay.total_seconds(), **fields)
        return "failed", PutBack(delay, failures=failures, is_continued=taken.is_continued)

    async def _is_stored(self, taken: TakenJob, outcome: str, put_back: PutBack | None) -> bool:
        try:
            if put_back is None:
                await self._queue.finish(taken.lease, has_failed=outcome == "let_go")
            else:
                await self._queue.put_back(taken.lease, put_back)
        except ThroughlineError as error:
            log.warning("job result not stored yet", kind=taken.job.kind, subject=taken.job.subject, error=error.code)
            return False
        return True

    async def _watch(self) -> None:
        """Every WATCH_SECONDS, queue scheduled jobs that are due, and report waiting jobs and claiming as metrics."""
        while True:
            with ErrorBoundary(log.warning, "waiting jobs not counted"):
                await self._queue.put_due(self._schedules)
                waiting = {found.kind: found for found in await self._queue.waiting()}
                for kind in self._handlers:
                    found = waiting.get(kind, WaitingJobs(kind, 0, 0.0))
                    self._metrics.jobs_waiting(kind=kind, jobs=found.jobs, oldest_seconds=found.oldest_seconds)
            for report in self._reports:
                with ErrorBoundary(log.warning, "waiting turns not counted"):
                    await report()
            self._metrics.jobs_taken(is_taking=self._loop.is_claiming)
            await asyncio.sleep(WATCH_SECONDS)


def _by_the_clock(schedule: Schedule) -> Work:
    async def run(_subject: str) -> None:
        await schedule.run()

    return run


# Maintenance of the search index in the background, by one job for each user whose messages are not indexed.
#
# An import, the adoption of a summary, and a search that ran out of time enqueue the job at once. A schedule enqueues
# it for all other messages. A search indexes remaining messages itself for a limited time and reports what is missing.


async def embed_in_rounds(run: Callable[[str], Awaitable[Rest | None]], subject: str) -> NotDone | None:
    """Do one round of an embedding job: call `run` with the job's subject, the name of the embedding model.

    Return None if the job is done, else the pause before its next round. Raises the model's errors, and
    DatabaseUnavailable.
    """
    rest = await run(subject)
    return None if rest is None else NotDone(rest.pause, has_failed=rest.has_failed)


EVERY = timedelta(minutes=5)


async def index_owner(
    history: SearchRepository, embed_soon: Callable[[], Awaitable[None]] | None, subject: str
) -> NotDone | None:
    """Index due messages of the owner named by `subject`, in rounds between which other jobs may run.

    With an embedding model, `embed_soon` queues the job that embeds the indexed messages. Texts are tokenized on the
    owner's one compute thread, which searches and turns share. Return None if no more messages are due. Raises
    DatabaseUnavailable.
    """
    owner_id = UserId(UUID(subject))
    work_for(owner_id)
    messages, is_more_due = await history.index_owner(owner_id)
    if messages:
        log.info("messages indexed for search", owner_id=str(owner_id), messages=messages)
        if embed_soon is not None:
            await embed_soon()
    return NotDone(has_failed=not messages) if is_more_due else None


class Indexing:
    """The scheduled search for owners with unindexed messages, whose indexing jobs it enqueues."""

    def __init__(self, history: SearchRepository) -> None:
        self._history = history

    async def run(self) -> None:
        """Enqueue a job for each owner with messages that have been unindexed for some minutes."""
        owners = await self._history.enqueue_indexing()
        if owners:
            log.info("search indexing jobs enqueued", owners=owners)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedule by which `run` is called."""
        return (Schedule(INDEX_HISTORY, EVERY, self.run),)


# The job that prepares a session's next summary in advance.
#
# Losing the job costs only time, because a turn that needs a missing summary writes it itself.

MOST_PLANS = 3
"""Consecutive planning attempts of a job if the session's summary keeps changing while it writes."""


async def prepare_summary(
    dependencies: TurnDependencies, index_session: Callable[[SessionId], Awaitable[int]], subject: str
) -> NotDone | None:
    """Prepare the summary of the session named by `subject`, if one is due; a repeated call finds nothing to do.

    Afterwards index the session's messages, so that those the summary covers can be found and quoted.

    Return None if the job is done. If a further summary is due, the next round prepares it, so that other sessions'
    jobs run in between. That happens with a long history, or if a turn ended meanwhile and found this job queued.
    Raises DatabaseUnavailable.
    """
    session_id = SessionId(UUID(subject))
    try:
        owner_id = await dependencies.messages.find_owner(session_id)
        work_for(owner_id)
        not_done = await _prepare(dependencies, session_id)
    except NotFound:
        log.info("job skipped, session deleted", session_id=subject)
        return None
    with ErrorBoundary(log.warning, "session indexing failed", session_id=subject):
        await index_session(session_id)
    return not_done


async def _prepare(dependencies: TurnDependencies, session_id: SessionId) -> NotDone | None:
    session = (await dependencies.messages.load_context(session_id, None, max_tokens=1)).session
    for _ in range(MOST_PLANS):
        attempt = await prepare_next(dependencies, session)
        if attempt.is_stale:
            continue
        if attempt.outcome is CompactionOutcome.FAILED:
            return NotDone(timedelta(seconds=attempt.delay_seconds), has_failed=True)
        is_written = attempt.outcome is CompactionOutcome.PREPARED
        return NotDone() if is_written and await is_next_due(dependencies, session) else None
    return NotDone(has_failed=True)
