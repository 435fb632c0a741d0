"""Scheduled erasure of archived sessions that were not changed for a number of days, if a setting asks for it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

import structlog

from throughline.db.jobs.kinds import ARCHIVED_SESSIONS
from throughline.db.jobs.queue import Schedule
from throughline.db.retention.archived_sessions import BEFORE_ALL, ArchivedSession, ArchiveRepository
from throughline.domain.clock import Clock
from throughline.domain.errors import DatabaseUnavailable, SessionBusy
from throughline.worker.retention import RetentionMetrics

HOURLY, MINUTE = timedelta(hours=1), timedelta(minutes=23)
LEAST_PAUSE_SECONDS = 0.2
REST = 4
"""Pause after each erasure, as a multiple of its duration.

An erasure searches the owner's other sessions for quotations and blocks the storage of quotations meanwhile. Without
pauses an owner of many sessions would be blocked continuously.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """Days to keep archived sessions (None: forever), and the most sessions and seconds per hourly run."""

    days: int | None = None
    most: int = 500
    budget_seconds: float = 600.0


class ArchivedSessions:
    """The scheduled erasure of archived sessions that did not change for a number of days.

    Concurrent processes erase each session once.
    """

    def __init__(
        self, archives: ArchiveRepository, clock: Clock, metrics: RetentionMetrics, config: ArchiveConfig
    ) -> None:
        self._archives = archives
        self._clock = clock
        self._metrics = metrics
        self._config = config

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the hourly schedule, or none if archived sessions are kept forever."""
        days = self._config.days
        return () if days is None else (Schedule(ARCHIVED_SESSIONS, HOURLY, lambda: self.run(days), at=MINUTE),)

    async def run(self, days: int) -> None:
        """Erase archived sessions without a change for more than `days`, oldest first, within the configured limits."""
        deadline, erased = self._clock.monotonic() + self._config.budget_seconds, 0
        async with aclosing(self._old(days)) as old:
            async for session in old:
                if erased >= self._config.most or self._clock.monotonic() >= deadline:
                    self._metrics.retention_out_of_time(kind=ARCHIVED_SESSIONS)
                    log.warning("erasure of archived sessions stopped at its limit")
                    break
                erased += await self._erase(session, days)
        log.info("archived sessions erased", sessions=erased)

    async def _old(self, days: int) -> AsyncGenerator[ArchivedSession]:
        after = BEFORE_ALL
        while page := await self._archives.list_old(days, after):
            for session in page:
                yield session
            after = page[-1]

    async def _erase(self, session: ArchivedSession, days: int) -> bool:
        """Erase one session, then pause, and return whether it was erased.

        A busy or slow session is left for the next run.
        """
        began, is_erased = self._clock.monotonic(), False
        try:
            is_erased = await self._archives.erase(session, days)
        except (SessionBusy, DatabaseUnavailable) as error:
            log.info("archived session not erased", session_id=str(session.id), error=error.code)
        self._metrics.retention_deleted(kind=ARCHIVED_SESSIONS, count=int(is_erased))
        await self._clock.sleep(max(LEAST_PAUSE_SECONDS, REST * (self._clock.monotonic() - began)))
        return is_erased
