"""The retention job: deletes what has served its time, batch by batch, and leaves the database room between them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias
from uuid import UUID

import structlog

from throughline.db.jobs.kinds import RETENTION, UNUSED_SUMMARIES
from throughline.db.jobs.queue import Schedule
from throughline.db.jobs.retention import FIRST_ID, Looked, RetentionRepository
from throughline.domain.clock import Clock
from throughline.domain.errors import TemporaryError

PAUSE_SECONDS = 0.05
HOURS_PER_DAY = 24
EVERY, DAILY = timedelta(minutes=15), timedelta(days=1)
DAILY_AT = timedelta(hours=3, minutes=41)
log = structlog.get_logger(__name__)

NOTHING_MORE = Looked(deleted=0, last=None)

Batch: TypeAlias = Callable[[UUID], Awaitable[Looked]]
"""Deletes the next batch of one kind, behind the id it is given."""


class RetentionMetrics(Protocol):
    """What retention reports, by kind.

    `run_events` (counted in runs), `run_keys`, `session_keys`, `job_log`, `jobs`, `prepared`, `stretches`,
    `archived_sessions`.
    """

    def retention_deleted(self, *, kind: str, count: int) -> None:
        """Count what was deleted, or forgotten."""
        ...

    def retention_failed(self, *, kind: str) -> None:
        """Count a time at which a batch of a kind failed."""
        ...

    def retention_out_of_time(self, *, kind: str) -> None:
        """Count a time at which some of a kind was left over for the next."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """How long things are kept: events of ended runs, unused pieces of summaries, the records of ended jobs.

    Idempotency keys are kept for ever where their hours are 0.
    `budget_seconds` is how long is deleted at one time: two thirds of the time between two, so that they never meet.
    """

    run_events_hours: int = 24
    idempotency_keys_hours: int = 720
    unused_summaries_days: int = 30
    job_log_hours: int = 72
    budget_seconds: float = 600.0


class Retention:
    """Deletes what is old. Doing it twice, or in two processes at once, deletes the same."""

    def __init__(
        self, repository: RetentionRepository, clock: Clock, metrics: RetentionMetrics, config: RetentionConfig
    ) -> None:
        """Delete through `repository`."""
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._config = config

    async def run(self) -> None:
        """Delete old events and records of jobs; forget old idempotency keys."""
        old, config = self._repository, self._config
        keys: dict[str, Batch] = {
            "run_keys": lambda after: old.forget_run_keys(config.idempotency_keys_hours, after),
            "session_keys": lambda after: old.forget_session_keys(config.idempotency_keys_hours, after),
        }
        await self._delete({
            "run_events": lambda after: old.delete_events(config.run_events_hours, after),
            "job_log": lambda _: old.delete_job_log(config.job_log_hours),
            "jobs": lambda _: old.delete_jobs(config.job_log_hours),
            **(keys if config.idempotency_keys_hours else {}),
        })

    async def run_daily(self) -> None:
        """Delete what was written for summaries and is in none: walks through all old stretches."""
        hours = self._config.unused_summaries_days * HOURS_PER_DAY
        await self._delete({
            "prepared": lambda _: self._repository.delete_prepared(),
            "stretches": lambda after: self._repository.delete_stretches(hours, after),
        })

    def schedules(self) -> tuple[Schedule, ...]:
        """Return when what is done."""
        return (Schedule(RETENTION, EVERY, self.run), Schedule(UNUSED_SUMMARIES, DAILY, self.run_daily, at=DAILY_AT))

    async def _delete(self, batches: Mapping[str, Batch]) -> None:
        """Delete a batch of each kind in turn, until nothing is left of any or the time is used up.

        In turn, so that a kind with much to delete leaves the others their part of the time.
        """
        deadline = self._clock.monotonic() + self._config.budget_seconds
        deleted, places = dict.fromkeys(batches, 0), dict.fromkeys(batches, FIRST_ID)
        while places and self._clock.monotonic() < deadline:
            for kind, after in tuple(places.items()):
                looked = await self._delete_batch(kind, batches[kind], after)
                deleted[kind] += looked.deleted
                if looked.last is None:
                    del places[kind]
                else:
                    places[kind] = looked.last
            await self._clock.sleep(PAUSE_SECONDS)
        log.info("retention done", **deleted)
        for kind in places:
            self._metrics.retention_out_of_time(kind=kind)
            log.warning("retention ran out of time, the rest is left for the next", kind=kind)

    async def _delete_batch(self, kind: str, batch: Batch, after: UUID) -> Looked:
        """Delete one batch. One that fails ends its kind for this time, and no other kind."""
        try:
            looked = await batch(after)
        except TemporaryError as error:
            self._metrics.retention_failed(kind=kind)
            log.warning("retention failed, it is tried again the next time", kind=kind, error=error.code)
            return NOTHING_MORE
        self._metrics.retention_deleted(kind=kind, count=looked.deleted)
        return looked
