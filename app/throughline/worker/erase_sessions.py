"""Scheduled erasure of old sessions: archived ones, if a setting asks for it, and those that expire."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

import structlog

from throughline.db.jobs.queue import ARCHIVED_SESSIONS, EXPIRED_SESSIONS, Schedule
from throughline.db.retention.old_sessions import BEFORE_ALL, OldSession, OldSessions
from throughline.domain.clock import Clock
from throughline.domain.errors import DatabaseUnavailable, SessionBusy
from throughline.worker.retention import RetentionMetrics

HOURLY, MINUTE = timedelta(hours=1), timedelta(minutes=23)
OFTEN = timedelta(minutes=5)
LEAST_PAUSE_SECONDS = 0.2
REST = 4
"""Pause after each erasure, as a multiple of its duration.

An erasure searches the owner's other sessions for quotations and blocks the storage of quotations meanwhile. Without
pauses an owner of many sessions would be blocked continuously.
"""

log = structlog.get_logger(__name__)


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
