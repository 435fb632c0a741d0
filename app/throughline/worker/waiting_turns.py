"""Report of the turns that wait, in all processes, as metrics: for a worker, or for something from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from throughline.domain.run import WaitingTurns


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
