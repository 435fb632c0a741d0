"""Report of the turns that wait, in all processes, as metrics: for a worker, or for something from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from throughline.db.jobs.queue import EXPIRED_WAITS, Schedule
from throughline.domain.clock import Clock
from throughline.domain.run import WaitingTurns

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


class WaitingTurnsStore(Protocol):
    """The part of the storage of runs that counts queued and waiting turns."""

    async def count_waiting(self) -> Sequence[WaitingTurns]:
        """Return the number and the age of the turns that are queued, and of those that wait."""
        ...


class TurnMetrics(Protocol):
    """Metrics of waiting turns."""

    def turns_waiting(self, *, status: str, turns: int, oldest_seconds: float) -> None:
        """Record the number of turns with this status, and the age of the oldest."""
        ...


@dataclass(frozen=True, slots=True)
class WaitingTurnsReport:
    """Reads the waiting turns and records them."""

    runs: WaitingTurnsStore
    metrics: TurnMetrics

    async def record(self) -> None:
        """Record the waiting turns once."""
        for found in await self.runs.count_waiting():
            self.metrics.turns_waiting(
                status=found.status.value, turns=found.turns, oldest_seconds=found.oldest_seconds
            )
