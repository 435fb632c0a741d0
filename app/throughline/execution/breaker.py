"""Circuit breakers by name: after failures in a row what stands behind one is not called for a while."""

from dataclasses import dataclass, field
from enum import StrEnum

from throughline.domain.clock import Clock

FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 60.0

MOST_RECORDS = 10_000
"""Failures may be counted under many names, a session's among them; the one that failed longest ago is forgotten."""


class BreakerState(StrEnum):
    """Whether a call may be made. `half_open`: the cool-down is over, and one call is to decide."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerReading:
    """A breaker as it stands; `retry_after_seconds` is what is left of the cool-down, 0 unless it is open."""

    state: BreakerState = BreakerState.CLOSED
    retry_after_seconds: float = 0.0


@dataclass(slots=True)
class _Record:
    failures: int = 0
    open_until: float = float("-inf")
    is_probing: bool = False


@dataclass(slots=True)
class Breakers:
    """The breakers of a process, shared by all turns. None stays open: after the cool-down one call decides.

    A caller of `acquire` says how its call ended: `succeeded`, `failed`, or `released` where that says nothing
    (cancelled, or cut off early). A caller that says nothing holds up others for one cool-down at most.
    """

    clock: Clock
    _records: dict[str, _Record] = field(default_factory=dict)

    def acquire(self, *names: str) -> bool:
        """Whether a call guarded by all these breakers may be made now; after the cool-down one at a time may."""
        now = self.clock.monotonic()
        records = [self._records[name] for name in names if self._has_failed(name)]
        if any(now < record.open_until for record in records):
            return False
        for record in records:
            record.open_until = now + COOL_DOWN_SECONDS
            record.is_probing = True
        return True

    def reading(self, name: str) -> BreakerReading:
        """Return the breaker as it stands; this changes nothing."""
        if not self._has_failed(name):
            return BreakerReading()
        record = self._records[name]
        left = record.open_until - self.clock.monotonic()
        if record.is_probing or left <= 0:
            return BreakerReading(BreakerState.HALF_OPEN)
        return BreakerReading(BreakerState.OPEN, left)

    def failures(self, name: str) -> int:
        """Return how many failures in a row are counted."""
        return self._records[name].failures if name in self._records else 0

    def succeeded(self, name: str) -> None:
        """Close the breaker."""
        self._records.pop(name, None)

    def failed(self, name: str) -> None:
        """Count a failure; the third in a row opens the breaker."""
        record = self._records.pop(name, None) or _Record()
        self._records[name] = record  # the newest is last
        record.failures += 1
        record.is_probing = False
        if record.failures >= FAILURES_TO_OPEN:
            record.open_until = self.clock.monotonic() + COOL_DOWN_SECONDS
        if len(self._records) > MOST_RECORDS:
            self._records.pop(next(iter(self._records)))

    def released(self, *names: str) -> None:
        """Count nothing; if this was the call that was to decide, the next one may."""
        for name in names:
            record = self._records.get(name)
            if record is not None and record.is_probing:
                record.is_probing = False
                record.open_until = self.clock.monotonic()

    def _has_failed(self, name: str) -> bool:
        return self.failures(name) >= FAILURES_TO_OPEN
