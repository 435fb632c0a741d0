"""Queuing of runs that waited too long for something from outside, so that their turns end with an answer."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from throughline.db.jobs.queue import EXPIRED_WAITS, Schedule
from throughline.domain.clock import Clock

EVERY = timedelta(minutes=1)
log = structlog.get_logger(__name__)


class WaitingRuns(Protocol):
    """The storage of waiting runs."""

    async def expire_waits(self, now: datetime) -> int:
        """Queue the runs whose wait has expired at `now`, up to a limit; return how many."""
        ...


@dataclass(frozen=True, slots=True)
class ExpiredWaits:
    """The scheduled search for waits that have expired. Concurrent runs of it have the same result as one."""

    runs: WaitingRuns
    clock: Clock

    async def run(self) -> None:
        """Queue all runs whose wait has expired."""
        while queued := await self.runs.expire_waits(self.clock.now()):
            log.info("expired waits queued", runs=queued)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedule of `run`: every minute."""
        return (Schedule(EXPIRED_WAITS, EVERY, self.run),)
