"""The retention job: deletes expired rows in batches, with pauses between them to limit the database's load."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from throughline.db.partitions import Dropped, PartitionRepository
from throughline.db.retention import (
    BEFORE_ALL,
    FIRST_ID,
    BatchResult,
    OldSession,
    OldSessions,
    RetentionRepository,
    kind_of,
)
from throughline.db.side_jobs import ARCHIVED_SESSIONS, EXPIRED_SESSIONS, RETENTION, UNUSED_SUMMARIES, Schedule
from throughline.domain.basic_types import Clock
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable, SessionBusy, TemporaryError

PAUSE_SECONDS = 0.05
HOURS_PER_DAY = 24
LONGEST_MONTH_DAYS = 31
EVERY, DAILY = timedelta(minutes=15), timedelta(days=1)
DAILY_AT = timedelta(hours=3, minutes=41)
SILENT_PROCESS_HOURS = 24
KEPT_HOURS = {"access_tokens": 1, "processes": SILENT_PROCESS_HOURS}
"""Retention periods that have no setting, in hours, by kind of row.

A process that ended without notice stays visible for a day. An expired token is told so for an hour.
"""

log = structlog.get_logger(__name__)

NOTHING_MORE = BatchResult(deleted=0, last=None)
NONE_DROPPED = Dropped(0)


class RetentionMetrics(Protocol):
    """Metrics of retention by kind: the kinds of `db/retention.py` and of front ends, and `archived_sessions`.

    `run_events` are counted in runs. `run_events_days` and `model_calls_months` count dropped partitions.
    """

    def retention_deleted(self, *, kind: str, count: int) -> None:
        """Count deleted rows, or cleared keys."""
        ...

    def retention_failed(self, *, kind: str) -> None:
        """Count a run of the retention job in which a batch of this kind failed."""
        ...

    def retention_out_of_time(self, *, kind: str) -> None:
        """Count a run of the job that left rows of this kind for its next run."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Retention periods: events of ended runs, idempotency keys, unused segments of summaries, records of failed jobs.

    With `idempotency_keys_hours` 0 idempotency keys are kept forever, model calls with `model_calls_months` None.
    `budget_seconds` limits one run of the job to two thirds of its interval, so that runs do not overlap.
    """

    run_events_hours: int = 24
    model_calls_months: int | None = None
    idempotency_keys_hours: int = 720
    unused_summaries_days: int = 30
    job_log_hours: int = 72
    budget_seconds: float = 600.0

    @property
    def hours_by_table(self) -> Mapping[str, int]:
        """The retention period, in hours, of each partitioned table; tables that are kept forever are left out."""
        months = self.model_calls_months
        calls = {} if months is None else {"model_calls": months * LONGEST_MONTH_DAYS * HOURS_PER_DAY}
        return {"run_events": self.run_events_hours, **calls}

    @property
    def hours_by_kind(self) -> Mapping[str, int]:
        """The retention period, in hours, of each kind of row that is deleted every 15 minutes.

        What is kept forever is left out.
        """
        keys = dict.fromkeys(("run_keys", "session_keys"), self.idempotency_keys_hours)
        return {
            **self.hours_by_table,
            "job_log": self.job_log_hours,
            "jobs": self.job_log_hours,
            **KEPT_HOURS,
            **(keys if self.idempotency_keys_hours else {}),
        }


class Retention:
    """The scheduled deletion of expired rows. Repeated or concurrent runs have the same result as one."""

    def __init__(
        self, repository: RetentionRepository, clock: Clock, metrics: RetentionMetrics, config: RetentionConfig
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._metrics = metrics
        self._config = config

    async def run(self) -> None:
        """Make and drop partitions, delete expired rows, and clear expired idempotency keys."""
        left = [name for each in self._repository.partitions for name in await self._change_partitions(each)]
        of_partitions = dict.fromkeys(left, self._config.run_events_hours)
        await self._delete({**self._config.hours_by_kind, **self._repository.kept_hours, **of_partitions})

    async def run_daily(self) -> None:
        """Delete prepared summaries that no longer fit the adopted one, and old segments that no summary uses.

        Segments are deleted `unused_summaries_days` after the last change of their session. All old segments are
        examined.
        """
        hours = self._config.unused_summaries_days * HOURS_PER_DAY
        await self._delete({"prepared": hours, "segments": hours})

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedules of `run` (every 15 minutes) and `run_daily`."""
        return (Schedule(RETENTION, EVERY, self.run), Schedule(UNUSED_SUMMARIES, DAILY, self.run_daily, at=DAILY_AT))

    async def _change_partitions(self, partitions: PartitionRepository) -> Sequence[str]:
        """Create the next partitions and drop the expired ones; return expired ones that must stay.

        What fails is tried again by the next run. Meanwhile rows without a partition go into the default one.
        """
        hours = self._config.hours_by_table.get(partitions.table)
        try:
            created = await partitions.prepare()
            dropped = NONE_DROPPED if hours is None else await partitions.drop_expired(hours)
        except (TemporaryError, DatabaseUnusable) as error:
            self._metrics.retention_failed(kind=partitions.kind)
            log.warning("partitions not changed, retried later", kind=partitions.kind, error=str(error))
            return ()
        if created or dropped.count:
            log.info("partitions changed", kind=partitions.kind, created=created, dropped=dropped.count)
        self._metrics.retention_deleted(kind=partitions.kind, count=dropped.count)
        return dropped.left

    async def _delete(self, hours: Mapping[str, int]) -> None:
        """Delete a batch of each kind in turn, until no rows are left or the time is used up.

        The alternation keeps a kind with many rows from using all the time.
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
        log.info("retention run ended, deleted or cleared by kind", **deleted)
        for kind in places:
            self._metrics.retention_out_of_time(kind=kind_of(kind))
            log.warning("retention stopped before all old rows were deleted", kind=kind)

    async def _delete_batch(self, kind: str, hours: int, after: UUID) -> BatchResult:
        """Delete one batch. If it fails, this kind is skipped for the rest of the run; other kinds continue."""
        try:
            looked = await self._repository.delete(kind, hours, after)
        except TemporaryError as error:
            self._metrics.retention_failed(kind=kind_of(kind))
            log.warning("deletion of old rows failed, kind skipped", kind=kind, error=error.code)
            return NOTHING_MORE
        self._metrics.retention_deleted(kind=kind_of(kind), count=looked.deleted)
        return looked


HOURLY, MINUTE = timedelta(hours=1), timedelta(minutes=23)
OFTEN = timedelta(minutes=5)
LEAST_PAUSE_SECONDS = 0.2
REST = 4
"""Pause after each erasure, as a multiple of its duration.

An erasure searches the owner's other sessions for quotations and blocks the storage of quotations meanwhile. Without
pauses an owner of many sessions would be blocked continuously.
"""


@dataclass(frozen=True, slots=True)
class ErasureConfig:
    """Days to keep old sessions (None: forever), and the most sessions and seconds per run."""

    days: int | None = None
    most: int = 500
    budget_seconds: float = 600.0


class SessionErasure:
    """The scheduled erasure of sessions that have been old for a number of days.

    Concurrent processes erase each session once.
    """

    def __init__(self, sessions: OldSessions, clock: Clock, metrics: RetentionMetrics, config: ErasureConfig) -> None:
        self._sessions = sessions
        self._clock = clock
        self._metrics = metrics
        self._config = config

    def hourly(self) -> tuple[Schedule, ...]:
        """Return the hourly schedule for archived sessions, or none if they are kept forever."""
        days = self._config.days
        if days is None:
            return ()
        return (Schedule(ARCHIVED_SESSIONS, HOURLY, lambda: self.run(days, ARCHIVED_SESSIONS), at=MINUTE),)

    def often(self) -> tuple[Schedule, ...]:
        """Return the schedule for expired sessions: every five minutes, without further days."""
        return (Schedule(EXPIRED_SESSIONS, OFTEN, lambda: self.run(0, EXPIRED_SESSIONS)),)

    async def run(self, days: int, kind: str) -> None:
        """Erase sessions that have been old for more than `days`, oldest first, within the configured limits.

        `kind` is their name in metrics and in the log.
        """
        deadline, erased = self._clock.monotonic() + self._config.budget_seconds, 0
        async with aclosing(self._old(days)) as old:
            async for session in old:
                if erased >= self._config.most or self._clock.monotonic() >= deadline:
                    self._metrics.retention_out_of_time(kind=kind)
                    log.warning("erasure of old sessions stopped at its limit", kind=kind)
                    break
                erased += await self._erase(session, days, kind)
        log.info("old sessions erased", kind=kind, sessions=erased)

    async def _old(self, days: int) -> AsyncGenerator[OldSession]:
        after = BEFORE_ALL
        while page := await self._sessions.list_old(days, after):
            for session in page:
                yield session
            after = page[-1]

    async def _erase(self, session: OldSession, days: int, kind: str) -> bool:
        """Erase one session, then pause, and return whether it was erased.

        A busy or slow session is left for the next run.
        """
        began, is_erased = self._clock.monotonic(), False
        try:
            is_erased = await self._sessions.erase(session, days)
        except (SessionBusy, DatabaseUnavailable) as error:
            log.info("old session not erased", kind=kind, session_id=str(session.id), error=error.code)
        self._metrics.retention_deleted(kind=kind, count=int(is_erased))
        await self._clock.sleep(max(LEAST_PAUSE_SECONDS, REST * (self._clock.monotonic() - began)))
        return is_erased
