"""The retention job: deletes what has served its time, batch by batch, and leaves the database room between them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import structlog

from app.db.jobs.queue import Schedule
from app.db.jobs.retention import ROWS_AT_ONCE, RUNS_AT_ONCE, RetentionRepository
from app.domain.clock import Clock
from app.domain.ids import StretchId

PAUSE_SECONDS = 0.05
MOST_BATCHES = 400
"""Of one kind and at one time: what is left over is the next time's."""

HOURS_PER_DAY = 24
FIRST_ID: StretchId | None = StretchId(UUID(int=0))
TIMES = "*/15 * * * *"
DAILY = "41 3 * * *"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """How long things are kept: events of ended runs, unused pieces of summaries, the records of ended jobs."""

    run_events_hours: int = 24
    unused_summaries_days: int = 30
    job_log_hours: int = 72


class Retention:
    """Deletes what is old. Doing it twice, or in two processes at once, deletes the same."""

    def __init__(self, repository: RetentionRepository, clock: Clock, config: RetentionConfig) -> None:
        """Delete through `repository`."""
        self._repository = repository
        self._clock = clock
        self._config = config

    async def run(self) -> None:
        """Delete old events and records of jobs, up to MOST_BATCHES of each."""
        old, config = self._repository, self._config
        events = await self._all(lambda: old.delete_events(config.run_events_hours), RUNS_AT_ONCE)
        lines = await self._all(lambda: old.delete_job_log(config.job_log_hours), ROWS_AT_ONCE)
        jobs = await self._all(lambda: old.delete_jobs(config.job_log_hours), ROWS_AT_ONCE)
        log.info("retention done", runs_with_events=events, job_log_lines=lines, jobs=jobs)

    async def run_daily(self) -> None:
        """Delete what was written for summaries and is in none: walks through all old stretches."""
        prepared = await self._all(self._repository.delete_prepared, ROWS_AT_ONCE)
        hours = self._config.unused_summaries_days * HOURS_PER_DAY
        stretches, after = 0, FIRST_ID
        while after is not None:
            looked = await self._repository.delete_stretches(hours, after)
            stretches, after = stretches + looked.deleted, looked.last
            await self._clock.sleep(PAUSE_SECONDS)
        log.info("unused summaries deleted", prepared=prepared, stretches=stretches)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return when what is done."""
        return (Schedule("retention", TIMES, self.run), Schedule("unused_summaries", DAILY, self.run_daily))

    async def _all(self, delete: Callable[[], Awaitable[int]], batch: int) -> int:
        """Delete batches until one is not full; return how many units went."""
        total = 0
        for _ in range(MOST_BATCHES):
            found = await delete()
            total += found
            if found < batch:
                break
            await self._clock.sleep(PAUSE_SECONDS)
        return total
