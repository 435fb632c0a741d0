"""PgQueuer's statements, but for those that end a job or keep it: these are ours, and only for what a process holds."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from pgqueuer import Queries
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.models import CronExpressionEntrypoint, Schedule, TracebackRecord
from pgqueuer.models import Job as QueuedJob
from pgqueuer.ports.driver import Driver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId

from throughline.db.jobs.names import queue_names
from throughline.db.jobs.queue import Again, Ending, Perform
from throughline.db.jobs.tries import begin, end, read_taken
from throughline.execution.error_boundary import ErrorBoundary

NOT_BEGUN = timedelta(seconds=5)
"""After so long a job is taken again that could not be begun, or of which nobody said how it ended."""

MOST_MISSED = 3
LONGEST_MISSED_SECONDS = 15.0
"""A connection on which so many questions in a row, for so long, had no answer is begun anew."""

PAUSE_SECONDS = 1.0
log = structlog.get_logger(__name__)

_KEEP = f"""
    update {queue_names().qualified.queue_table} set heartbeat = now() where id = any($1) and queue_manager_id = $2
"""  # noqa: S608  # our name


@dataclass(slots=True)
class Answers:
    """How the database answered when it was asked for jobs. `is_heard`: it did the last time, on a connection there is.

    `heard_at` is by this process's own clock, in seconds; `missed_in_a_row` counts the times since that it did not,
    `missed_since` is when they began.
    """

    is_heard: bool = False
    heard_at: float = float("-inf")
    missed_in_a_row: int = 0
    missed_since: float = float("inf")

    @property
    def are_missing(self) -> bool:
        """Whether so many were missed, for so long, that the connection should be begun anew."""
        missed_seconds = time.monotonic() - self.missed_since
        return self.missed_in_a_row >= MOST_MISSED and missed_seconds >= LONGEST_MISSED_SECONDS

    def heard(self) -> None:
        """Note an answer."""
        self.is_heard, self.heard_at, self.missed_in_a_row = True, time.monotonic(), 0

    def missed(self) -> None:
        """Note that there was none."""
        if self.missed_in_a_row == 0:
            self.missed_since = time.monotonic()
        self.is_heard, self.missed_in_a_row = False, self.missed_in_a_row + 1

    def disconnected(self) -> None:
        """Note that there is no connection to ask on."""
        self.is_heard, self.missed_in_a_row = False, 0


@dataclass
class HeldJobs(Queries):
    """The queue as one process sees it, while one connection lasts.

    PgQueuer takes every job out of the queue whose handler has returned, raised or been cancelled, whoever holds it by
    then. Here a job ends as `perform` said, where this process still holds it. Of what nothing was said the row stays.
    """

    answers: Answers = field(default_factory=Answers)
    give_up: Callable[[], None] = lambda: None
    held_by: QueueManagerId | None = None
    endings: dict[tuple[JobId, int], Ending] = field(default_factory=dict)
    """By job and how often it had been begun before: each time it is taken ends on its own."""

    async def perform(self, perform: Perform, queued: QueuedJob) -> None:
        """Do a job, and note how it ended: where it could not be begun, it goes back into the line as it was."""
        taken = read_taken(queued)
        time_taken = (queued.id, queued.attempts)
        self.endings[time_taken] = Again(NOT_BEGUN, taken.failures, taken.lost, taken.is_continued, taken.rested_after)
        await begin(self.driver, queued)
        self.endings[time_taken] = await perform(taken)

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[QueuedJob]:
        """Take the next jobs; none, after a pause, where the database does not answer, and at last give up."""
        self.held_by = queue_manager_id
        with self._looking() as looking:
            found = await super().dequeue(
                batch_size, entrypoints, queue_manager_id, global_concurrency_limit, heartbeat_timeout
            )
        if looking.error is None:
            self.answers.heard()
            return found
        self.answers.missed()
        if self.answers.are_missing:
            self.give_up()
        await asyncio.sleep(PAUSE_SECONDS)
        return []

    async def eligible_queued_work(self, entrypoints: list[QueueEntrypoint]) -> int:
        """Return how many jobs could be taken; none where the database does not answer."""
        with self._looking():
            return await super().eligible_queued_work(entrypoints)
        return 0

    async def queued_work(self, entrypoints: list[QueueEntrypoint]) -> int:
        """Return how many jobs wait; none where the database does not answer."""
        with self._looking():
            return await super().queued_work(entrypoints)
        return 0

    async def next_deferred_eta(self, entrypoints: list[QueueEntrypoint]) -> timedelta | None:
        """Return when the next job can be taken; None where the database does not answer."""
        with self._looking():
            return await super().next_deferred_eta(entrypoints)
        return None

    async def fetch_schedule(self, entrypoints: dict[CronExpressionEntrypoint, timedelta]) -> list[Schedule]:
        """Take what is due by the clock; asked again where the database does not answer, for it is next asked late."""
        for _ in range(MOST_MISSED):
            with self._looking():
                return await super().fetch_schedule(entrypoints)
            await asyncio.sleep(PAUSE_SECONDS)
        return []

    def _looking(self) -> ErrorBoundary:
        """Outlive a statement that fails: PgQueuer would take nothing more until all it has in hand has ended."""
        return ErrorBoundary(log.warning, "looking for jobs failed, it is tried again")

    async def log_jobs(self, job_status: list[tuple[QueuedJob, JOB_STATUS, TracebackRecord | None]]) -> None:
        """End the jobs as `perform` noted it. PgQueuer asks again, with all of them, where this raises."""
        for queued, _, _ in job_status:
            time_taken = (queued.id, queued.attempts)
            if time_taken in self.endings:
                await end(self.driver, queued, self.endings[time_taken])
                del self.endings[time_taken]

    async def update_heartbeat(self, job_ids: Sequence[JobId]) -> None:
        """Give a sign of life for those of the jobs that this process still holds."""
        await self.driver.execute(_KEEP, list(set(job_ids)), self.held_by)


def held_jobs(driver: Driver, answers: Answers, *, give_up: Callable[[], None]) -> HeldJobs:
    """Return the queue as seen on one connection; `give_up` closes it."""
    names = queue_names()
    return HeldJobs(
        driver,
        qbe=QueryBuilderEnvironment(settings=names),
        qbq=QueryQueueBuilder(settings=names),
        qbs=QuerySchedulerBuilder(settings=names),
        answers=answers,
        give_up=give_up,
    )
