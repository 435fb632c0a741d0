"""What operators are shown of a service as a whole: its processes, its lines, and what is held. Values only."""

from dataclasses import dataclass
from datetime import datetime

from throughline.domain.process import Process, ProcessState


@dataclass(frozen=True, slots=True)
class NotedProcess:
    """A process as its last beat left it, by the database's clock. `is_silent`: it missed beats, and may be gone."""

    process: Process
    state: ProcessState
    started_at: datetime
    heartbeat_at: datetime
    up_seconds: float
    since_heartbeat_seconds: float
    is_silent: bool

    @property
    def takes_turns(self) -> bool:
        """Whether what waits can be taken by it."""
        return self.state.is_claiming and not self.is_silent


@dataclass(frozen=True, slots=True)
class Line:
    """What waits; `oldest_seconds` is how long the oldest of it has waited, None where nothing does."""

    waiting: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class HeldRuns:
    """The running turns of one process. Of `expired` ones the lease is over: the next claim of anybody takes them.

    `lease_seconds` is what is left of the lease that ends first, below 0 where it has ended.
    """

    worker: str
    runs: int
    expired: int
    lease_seconds: float
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class WorkLine:
    """Work of one kind: what waits, what is in hand, and what failed for good in the last 24 hours.

    Of what waits, `retrying` have failed before and are tried again.
    """

    kind: str
    line: Line
    in_hand: int
    failed: int
    retrying: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """All of it, as it was at one moment.

    `held`: where leases are over, first; `slack`: None where it is not used; `database`: which one was read.
    """

    schema: str
    processes: tuple[NotedProcess, ...]
    queued: Line
    held: tuple[HeldRuns, ...]
    jobs: tuple[WorkLine, ...]
    slack: WorkLine | None
    database: str = ""

    @property
    def takers(self) -> int:
        """How many processes take turns."""
        return sum(noted.takes_turns for noted in self.processes)

    @property
    def untaken(self) -> int:
        """How many turns nobody works on: those in line, and those whose process is gone."""
        return self.queued.waiting + sum(held.expired for held in self.held)

    @property
    def is_stuck(self) -> bool:
        """Whether something waits and there is nobody to take it."""
        return self.untaken > 0 and self.takers == 0
