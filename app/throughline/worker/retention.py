"""The retention job: deletes what has served its time, batch by batch, and leaves the database room between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from throughline.db.jobs.kinds import RETENTION, UNUSED_SUMMARIES
from throughline.db.jobs.queue import Schedule
from throughline.db.retention.old_rows import FIRST_ID, RetentionRepository, Walked
from throughline.domain.clock import Clock
from throughline.domain.errors import TemporaryError

PAUSE_SECONDS = 0.05
HOURS_PER_DAY = 24
EVERY, DAILY = timedelta(minutes=15), timedelta(days=1)
DAILY_AT = timedelta(hours=3, minutes=41)
SLACK_HOURS, EARLY_EDIT_HOURS, SILENT_PROCESS_HOURS = 168, 24, 24
KEPT_HOURS = {
    **dict.fromkeys(("slack_events", "slack_deliveries", "slack_departures"), SLACK_HOURS),
    "slack_early_edits": EARLY_EDIT_HOURS,
    "slack_link_codes": 0,  # after their own time
    "processes": SILENT_PROCESS_HOURS,
}
"""What no setting says. For a day one can see that a process ended without saying so."""

log = structlog.get_logger(__name__)

NOTHING_MORE = Walked(deleted=0, last=None)


class RetentionMetrics(Protocol):
    """What retention reports, by kind: those of `db/retention/old_rows.py`, and `archived_sessions`.

    `run_events` are counted in runs.
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

    @property
    def hours_by_kind(self) -> Mapping[str, int]:
        """How old what gets that goes every 15 minutes."""
        keys = dict.fromkeys(("run_keys", "session_keys"), self.idempotency_keys_hours)
        return {
            "run_events": self.run_events_hours,
            "job_log": self.job_log_hours,
            "jobs": self.job_log_hours,
            **KEPT_HOURS,
            **(keys if self.idempotency_keys_hours else {}),
        }


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
        """Delete what is old, and forget old idempotency keys."""
        await self._delete(self._config.hours_by_kind)

    async def run_daily(self) -> None:
        """Delete what was written for summaries and is in none: walks through all old segments."""
        hours = self._config.unused_summaries_days * HOURS_PER_DAY
        await self._delete({"prepared": hours, "segments": hours})

    def schedules(self) -> tuple[Schedule, ...]:
        """Return when what is done."""
        return (Schedule(RETENTION, EVERY, self.run), Schedule(UNUSED_SUMMARIES, DAILY, self.run_daily, at=DAILY_AT))

    async def _delete(self, hours: Mapping[str, int]) -> None:
        """Delete a batch of each kind in turn, until nothing is left of any or the time is used up.

        In turn, so that a kind with much to delete leaves the others their part of the time.
        """
        deadline = self._clock.monotonic() + self._config.budget_seconds
        deleted, places = dict.fromkeys(hours, 0), dict.fromkeys(hours, FIRST_ID)
        while places and self._clock.monotonic() < deadline:
            for kind, after in tuple(places.items()):
                looked = await self._delete_batch(kind, hours[kind], after)
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

    async def _delete_batch(self, kind: str, hours: int, after: UUID) -> Walked:
        """Delete one batch. One that fails ends its kind for this time, and no other kind."""
        try:
            looked = await self._repository.delete(kind, hours, after)
        except TemporaryError as error:
            self._metrics.retention_failed(kind=kind)
            log.warning("retention failed, it is tried again the next time", kind=kind, error=error.code)
            return NOTHING_MORE
        self._metrics.retention_deleted(kind=kind, count=looked.deleted)
        return looked
