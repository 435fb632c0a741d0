"""Circuit breakers by name: after consecutive failures, calls are blocked for a while."""

from dataclasses import dataclass, field
from enum import StrEnum

from throughline.domain.basic_types import Clock


def doubled_backoff(tries: int, first_seconds: float, longest_seconds: float) -> float:
    """Return the seconds to pause after `tries` tries (at least one).

    After the first try it is `first_seconds`; each further one doubles it, up to `longest_seconds`.
    """
    doublings = min(tries - 1, 64)  # more would be useless, and 2.0**1024 overflows
    return min(longest_seconds, first_seconds * 2.0**doublings)


FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 60.0

MOST_RECORDS = 10_000
"""Most names with counted failures; names may include session ids. The one that failed longest ago is dropped."""


class BreakerState(StrEnum):
    """Whether calls are allowed: `closed` allows them, `open` blocks them.

    `half_open`: the cool-down is over, and the result of one trial call decides.
    """

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerReading:
    """A breaker's current state; `retry_after_seconds` is the rest of the cool-down, 0 unless open."""

    state: BreakerState = BreakerState.CLOSED
    retry_after_seconds: float = 0.0


@dataclass(slots=True)
class _Record:
    failures: int = 0
    open_until: float = float("-inf")
    is_probing: bool = False


@dataclass(slots=True)
class Breakers:
    """The circuit breakers of a process, shared by all turns. After the cool-down, one trial call decides.

    After `acquire` the caller reports the call's result: `succeeded`, `failed`, or `released` if it says nothing about
    the service (cancelled or cut off). An unreported call blocks others for at most one cool-down.
    """

    clock: Clock
    _records: dict[str, _Record] = field(default_factory=dict)

    def acquire(self, *names: str) -> bool:
        """Return whether a call guarded by all these breakers may start now.

        After a cool-down this call is the one trial call. Others are blocked until its result is reported, or for a
        further cool-down.
        """
        now = self.clock.monotonic()
        records = [self._records[name] for name in names if self._has_failed(name)]
        if any(now < record.open_until for record in records):
            return False
        for record in records:
            record.open_until = now + COOL_DOWN_SECONDS
            record.is_probing = True
        return True

    def reading(self, name: str) -> BreakerReading:
        """Return the breaker's current state without changing it."""
        if not self._has_failed(name):
            return BreakerReading()
        record = self._records[name]
        left = record.open_until - self.clock.monotonic()
        if record.is_probing or left <= 0:
            return BreakerReading(BreakerState.HALF_OPEN)
        return BreakerReading(BreakerState.OPEN, left)

    def failures(self, name: str) -> int:
        """Return the number of consecutive failures of calls guarded by this breaker."""
        return self._records[name].failures if name in self._records else 0

    def succeeded(self, name: str) -> None:
        """Close the breaker, and forget its failures."""
        self._records.pop(name, None)

    def failed(self, name: str) -> None:
        """Count a failure; the third in a row opens the breaker."""
        record = self._records.pop(name, None) or _Record()
        self._records[name] = record  # the dict's last entry is the newest failure
        record.failures += 1
        record.is_probing = False
        if record.failures >= FAILURES_TO_OPEN:
            record.open_until = self.clock.monotonic() + COOL_DOWN_SECONDS
        if len(self._records) > MOST_RECORDS:
            self._records.pop(next(iter(self._records)))

    def released(self, *names: str) -> None:
        """Report a call that says nothing about the service; if it was the trial call, allow another one."""
        for name in names:
            record = self._records.get(name)
            if record is not None and record.is_probing:
                record.is_probing = False
                record.open_until = self.clock.monotonic()

    def _has_failed(self, name: str) -> bool:
        return self.failures(name) >= FAILURES_TO_OPEN
