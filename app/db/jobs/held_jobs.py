"""PgQueuer's statements, but for those that end a job or keep it: these are ours, and only for what a process holds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pgqueuer import Queries
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.models import Job as QueuedJob
from pgqueuer.models import TracebackRecord
from pgqueuer.ports.driver import Driver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId

from app.db.jobs.names import queue_names
from app.db.jobs.queue import Again, Perform
from app.db.jobs.tries import Ending, begin, end, read_taken

NOT_BEGUN = timedelta(seconds=5)
"""After so long a job is taken again that could not be begun, or of which nobody said how it ended."""

_KEEP = f"""
    update {queue_names().qualified.queue_table} set heartbeat = now() where id = any($1) and queue_manager_id = $2
"""  # noqa: S608  # our name


@dataclass
class HeldJobs(Queries):
    """The queue as one process sees it, while one connection lasts.

    PgQueuer takes every job out of the queue whose handler has returned, raised or been cancelled, whoever holds it by
    then. Here a job ends as `perform` said, where this process still holds it. Of what nothing was said the row stays.
    """

    held_by: QueueManagerId | None = None
    endings: dict[JobId, Ending] = field(default_factory=dict)

    async def perform(self, perform: Perform, queued: QueuedJob) -> None:
        """Do a job, and note how it ended: where it could not be begun, it goes back into the line as it was."""
        taken = read_taken(queued)
        self.endings[queued.id] = Again(NOT_BEGUN, taken.failures, taken.lost, taken.is_continued)
        await begin(self.driver, queued)
        self.endings[queued.id] = await perform(taken)

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[QueuedJob]:
        """Take the next jobs."""
        self.held_by = queue_manager_id
        return await super().dequeue(
            batch_size, entrypoints, queue_manager_id, global_concurrency_limit, heartbeat_timeout
        )

    async def log_jobs(self, job_status: list[tuple[QueuedJob, JOB_STATUS, TracebackRecord | None]]) -> None:
        """End the jobs as `perform` noted it. PgQueuer asks again, with all of them, where this raises."""
        for queued, _, _ in job_status:
            if queued.id in self.endings:
                await end(self.driver, queued, self.endings[queued.id])
                del self.endings[queued.id]

    async def update_heartbeat(self, job_ids: Sequence[JobId]) -> None:
        """Give a sign of life for those of the jobs that this process still holds."""
        await self.driver.execute(_KEEP, list(set(job_ids)), self.held_by)


def held_jobs(driver: Driver) -> HeldJobs:
    """Return the queue as seen on one connection."""
    names = queue_names()
    return HeldJobs(
        driver,
        qbe=QueryBuilderEnvironment(settings=names),
        qbq=QueryQueueBuilder(settings=names),
        qbs=QuerySchedulerBuilder(settings=names),
    )
