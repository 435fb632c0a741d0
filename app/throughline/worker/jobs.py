"""The side jobs of one process: what there is to do, how much of it at once, and what becomes of what fails."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

import structlog

from throughline.db.jobs.consumer import JobConsumer
from throughline.db.jobs.queue import Again, Ending, JobBook, JobQueue, LetGo, Schedule, TakenJob, Waiting
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.outcome import Outcome, Raised, outcome_of_awaiting
from throughline.execution.running_beside import running_beside
from throughline.worker.shares import Shares

MOST_TRIES = 12
"""Within three quarters of an hour, longer than most outages. Then a job that fails is let go: whoever needs what it
would have done puts it in line again."""

MOST_LOST = 6
"""A job over which so many processes died in a row is not begun again: it may be what killed them.

From the second death on it is put off as a failed one is. What was only there when they died is let alone by then.
"""

LONGEST_SILENCE_SECONDS = 60.0
"""A process that has taken no job for longer has more than a connection that is just begun anew."""

WATCH_SECONDS = 15.0
CONTINUED = "continued"
AT_ONCE = timedelta(0)
log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pauses:
    """Before a failed job is tried again: `first`, four times as long before each further try, at most `longest`."""

    first: timedelta = timedelta(seconds=5)
    longest: timedelta = timedelta(minutes=5)

    def after(self, failures: int) -> timedelta:
        """Return the pause after so many failures, at least one."""
        return min(self.first * int(4 ** (failures - 1)), self.longest)


@dataclass(frozen=True, slots=True)
class NotDone:
    """What a job says that is to be taken again, behind all others that wait, after `delay` at the earliest.

    One that got further comes back as often as it likes, one that `has_failed` MOST_TRIES times. Without `was_begun`
    there was no place for it: it counts as if nobody had taken it.
    """

    delay: timedelta = AT_ONCE
    has_failed: bool = False
    was_begun: bool = True


Work: TypeAlias = Callable[[str], Awaitable[NotDone | None]]
"""Does a job for a subject; None when it is done. Coming twice it finds nothing to do."""


@dataclass(frozen=True, slots=True)
class JobRegistry:
    """What this process can do: a handler for each kind of job, and what is done by the clock."""

    handlers: Mapping[str, Work]
    schedules: Sequence[Schedule] = ()
    pauses: Pauses = Pauses()


class JobMetrics(Protocol):
    """What side jobs report."""

    def job_ended(self, *, kind: str, outcome: str) -> None:
        """Count a job that was taken.

        `done`, `continued` (more rounds follow), `failed` (it is tried again), `let_go`, `put_off` (processes died
        over it), `no_place` (its share of the places is taken), `handed_back` (the process stops).
        """
        ...

    def jobs_waiting(self, *, kind: str, jobs: int, oldest_seconds: float) -> None:
        """Show how many jobs wait, and how long the oldest that could have been taken has waited."""
        ...

    def jobs_taken(self, *, is_taking: bool) -> None:
        """Show whether this process takes jobs at present."""
        ...


class SideJobs:
    """Takes jobs from the queue and does up to `concurrency` at once, while `run` runs."""

    def __init__(
        self, queue: JobQueue, consumer: JobConsumer, registry: JobRegistry, metrics: JobMetrics, concurrency: int
    ) -> None:
        """Nothing is taken before `run`. Further rounds of long jobs get half of the places at most."""
        self._queue = queue
        self._metrics = metrics
        self._rounds = Shares(concurrency // 2)
        self._consumer = consumer
        self._registry = registry
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._under_way: set[asyncio.Future[Any]] = set()  # of whatever result
        self._is_stopping = False

    @property
    def is_taking(self) -> bool:
        """Whether jobs are being taken, for readiness: they may be late, so what is soon over changes nothing."""
        return self._consumer.has_taken_within(LONGEST_SILENCE_SECONDS)

    @property
    def in_hand(self) -> int:
        """How many jobs and scheduled works are under way."""
        return len(self._under_way)

    async def run(self) -> None:
        """Take jobs until `close`; returns once those in hand have ended or were handed back."""
        kinds = dict.fromkeys(self._registry.handlers, self._perform)
        schedules = [replace(schedule, run=self._guarded(schedule)) for schedule in self._registry.schedules]
        async with running_beside(self._watch(), "watch the jobs that wait"):
            await self._consumer.run(JobBook(kinds, schedules), most_at_once=self._concurrency)

    def close(self) -> None:
        """Take no more jobs; those in hand go on."""
        self._consumer.close()

    async def stop(self) -> None:
        """Stop what is in hand: jobs go back into the line at once, for the next process that takes some."""
        self._is_stopping = True
        self.close()
        for task in self._under_way:
            task.cancel()

    async def _perform(self, taken: TakenJob) -> Ending:
        """Do the job; return what becomes of it."""
        outcome, ending = await self._outcome(taken)
        self._metrics.job_ended(kind=taken.job.kind, outcome=outcome)
        return ending

    async def _outcome(self, taken: TakenJob) -> tuple[str, Ending]:
        untried = Again(AT_ONCE, taken.failures, taken.lost, taken.is_continued, taken.rested_after)
        if self._is_stopping:
            return "handed_back", untried
        if taken.lost >= MOST_LOST:
            log.error("job is let go, its processes died", kind=taken.job.kind, subject=taken.job.subject)
            return "let_go", LetGo()
        if taken.lost > max(taken.rested_after, 1):
            pause = self._registry.pauses.after(taken.lost - 1)
            return "put_off", replace(untried, delay=pause, rested_after=taken.lost)
        try:
            outcome = await outcome_of_awaiting(self._tracked(self._in_a_slot(taken)))
        except asyncio.CancelledError:
            return "handed_back", untried
        return self._judged(taken, outcome, untried)

    def _judged(self, taken: TakenJob, outcome: Outcome[NotDone | None], untried: Again) -> tuple[str, Ending]:
        if isinstance(outcome, Raised):
            return self._after_failure(taken, AT_ONCE, error=type(outcome.error).__name__)
        match outcome.value:
            case None:
                return "done", None
            case NotDone(was_begun=False, delay=delay):
                return "no_place", replace(untried, delay=delay)
            case NotDone(has_failed=True, delay=delay):
                return self._after_failure(taken, delay, error="nothing achieved")
            case NotDone(delay=delay):
                return "continued", Again(delay, is_continued=True)

    async def _watch(self) -> None:
        """Report what waits, of all processes, and whether this one takes anything."""
        while True:
            with ErrorBoundary(log.warning, "jobs that wait were not counted"):
                waiting = {found.kind: found for found in await self._queue.waiting()}
                for kind in self._registry.handlers:
                    found = waiting.get(kind, Waiting(kind, 0, 0.0))
                    self._metrics.jobs_waiting(kind=kind, jobs=found.jobs, oldest_seconds=found.oldest_seconds)
            self._metrics.jobs_taken(is_taking=self._consumer.is_taking)
            await asyncio.sleep(WATCH_SECONDS)

    def _guarded(self, schedule: Schedule) -> Callable[[], Awaitable[None]]:
        """Return the schedule's work so that it can be stopped; what fails is done at the next time."""

        async def run() -> None:
            try:
                with ErrorBoundary(log.warning, "scheduled work failed", schedule=schedule.name):
                    await self._tracked(schedule.run())
            except asyncio.CancelledError:
                log.info("scheduled work was stopped", schedule=schedule.name)

        return run

    async def _in_a_slot(self, taken: TakenJob) -> NotDone | None:
        job, rounds = taken.job, self._rounds
        async with self._slots:
            if not taken.is_continued:
                return await self._registry.handlers[job.kind](job.subject)
            if (delay := rounds.take(CONTINUED)) is not None:
                return NotDone(delay, was_begun=False)
            try:
                return await self._registry.handlers[job.kind](job.subject)
            finally:
                rounds.give_back(CONTINUED)

    async def _tracked(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        try:
            return await task
        finally:
            self._under_way.discard(task)

    def _after_failure(self, taken: TakenJob, least: timedelta, *, error: str) -> tuple[str, Ending]:
        told = {"kind": taken.job.kind, "subject": taken.job.subject, "error": error}
        failures = taken.failures + 1
        if failures >= MOST_TRIES:
            log.error("job failed and is let go", **told)
            return "let_go", LetGo()
        delay = max(self._registry.pauses.after(failures), least)
        log.warning("job failed, it is tried again", delay_seconds=delay.total_seconds(), **told)
        return "failed", Again(delay, failures, is_continued=taken.is_continued)
