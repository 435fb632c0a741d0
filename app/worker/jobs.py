"""The side jobs of one process: what there is to do, how much of it at once, and what becomes of what fails."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

import structlog

from app.db.jobs.consumer import JobConsumer
from app.db.jobs.queue import Job, JobBook, JobQueue, Schedule, TakenJob
from app.domain.errors import ThroughlineError
from app.execution.error_boundary import ErrorBoundary
from app.execution.outcome import Raised, outcome_of_awaiting

MOST_TRIES = 4
FIRST_DELAY = timedelta(seconds=5)
"""Before a failed job is tried again; four times as long before each further try. Then it is let go: whoever needs what
it would have done puts it in line again."""

AT_ONCE = timedelta(0)
log = structlog.get_logger(__name__)

Work: TypeAlias = Callable[[str], Awaitable[None]]
"""Does a job for a subject. Coming twice it finds nothing to do."""


@dataclass(frozen=True, slots=True)
class JobRegistry:
    """What this process can do: a handler for each kind of job, and what is done by the clock."""

    handlers: Mapping[str, Work]
    schedules: Sequence[Schedule] = ()
    first_delay: timedelta = FIRST_DELAY


class SideJobs:
    """Takes jobs from the queue and does up to `concurrency` at once, while `run` runs."""

    def __init__(self, queue: JobQueue, consumer: JobConsumer, registry: JobRegistry, concurrency: int) -> None:
        """Nothing is taken before `run`."""
        self._queue = queue
        self._consumer = consumer
        self._registry = registry
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._under_way: set[asyncio.Task[None]] = set()
        self._enqueuing: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def is_taking(self) -> bool:
        """Whether jobs are being taken, for readiness."""
        return self._consumer.is_taking

    def enqueue_soon(self, job: Job) -> None:
        """Put a job in line in the background; nobody waits for it, and one that is lost is put in line again."""
        task = asyncio.create_task(self._enqueue(job), name=f"enqueue {job.kind}")
        self._enqueuing.add(task)
        task.add_done_callback(self._enqueuing.discard)

    async def run(self) -> None:
        """Take jobs until `close`; returns once those in hand have ended or were handed back."""
        kinds = dict.fromkeys(self._registry.handlers, self._perform)
        schedules = [replace(schedule, run=self._guarded(schedule)) for schedule in self._registry.schedules]
        await self._consumer.run(JobBook(kinds, schedules), most_at_once=self._concurrency)

    def close(self) -> None:
        """Take no more jobs; those in hand go on."""
        self._consumer.close()

    async def stop(self) -> None:
        """Stop what is in hand: jobs go back into the line at once, for the next process that takes some."""
        self._is_stopping = True
        self.close()
        await asyncio.gather(*self._enqueuing, return_exceptions=True)
        for task in self._under_way:
            task.cancel()

    async def _enqueue(self, job: Job) -> None:
        try:
            await self._queue.enqueue(job)
        except ThroughlineError as error:
            log.warning("job was not put in line", kind=job.kind, subject=job.subject, error=error.code)

    async def _perform(self, taken: TakenJob) -> timedelta | None:
        """Do the job; return after how long it is to be tried again, None where it is done or let go."""
        if self._is_stopping:
            return AT_ONCE
        try:
            outcome = await outcome_of_awaiting(self._tracked(self._in_a_slot(taken.job)))
        except asyncio.CancelledError:
            return AT_ONCE
        return self._after_failure(taken, outcome.error) if isinstance(outcome, Raised) else None

    def _guarded(self, schedule: Schedule) -> Callable[[], Awaitable[None]]:
        """Return the schedule's work so that it can be stopped; what fails is done at the next time."""

        async def run() -> None:
            try:
                with ErrorBoundary(log.warning, "scheduled work failed", schedule=schedule.name):
                    await self._tracked(schedule.run())
            except asyncio.CancelledError:
                log.info("scheduled work was stopped", schedule=schedule.name)

        return run

    async def _in_a_slot(self, job: Job) -> None:
        async with self._slots:
            await self._registry.handlers[job.kind](job.subject)

    async def _tracked(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        try:
            await task
        finally:
            self._under_way.discard(task)

    def _after_failure(self, taken: TakenJob, error: BaseException) -> timedelta | None:
        told = {"kind": taken.job.kind, "subject": taken.job.subject, "error": type(error).__name__}
        if taken.earlier_tries + 1 >= MOST_TRIES:
            log.error("job failed and is let go", **told)
            return None
        delay = self._registry.first_delay * int(4**taken.earlier_tries)
        log.warning("job failed, it is tried again", delay_seconds=delay.total_seconds(), **told)
        return delay
