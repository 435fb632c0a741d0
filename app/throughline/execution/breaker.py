"""A breaker for each summary model: after failures in a row it is left alone for a while, and then tried again."""

from dataclasses import dataclass, field
from enum import StrEnum

from throughline.domain.clock import Clock

FAILURES_TO_OPEN = 3
COOL_DOWN_SECONDS = 60.0

MOST_RECORDS = 10_000
"""Failures may be counted under many keys, a session's among them; the one that failed longest ago is forgotten."""


class BreakerState(StrEnum):
    """Whether a model may be called. `half_open`: the cool-down is over, and one call is to decide."""

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
    """Shared by all turns of a process. Never a latch: after the cool-down one call goes through and decides.

    Who got leave from `may_call` tells how the call ended: `succeeded`, `failed`, or `released` where it says nothing
    of the model (cancelled, or cut off early). A caller that tells nothing holds up others for one cool-down at most.
    """

    clock: Clock
    _records: dict[str, _Record] = field(default_factory=dict)

    def may_call(self, model: str) -> bool:
        """Whether the model may be called now. After the cool-down one caller is let through at a time."""
        record = self._records.get(model)
        if record is None or record.failures < FAILURES_TO_OPEN:
            return True
        now = self.clock.monotonic()
        if now < record.open_until:
            return False
        record.open_until = now + COOL_DOWN_SECONDS
        record.is_probing = True
        return True

    def reading(self, model: str) -> BreakerReading:
        """Return the breaker as it stands; looking changes nothing."""
        record = self._records.get(model)
        if record is None or record.failures < FAILURES_TO_OPEN:
            return BreakerReading()
        left = record.open_until - self.clock.monotonic()
        if record.is_probing or left <= 0:
            return BreakerReading(BreakerState.HALF_OPEN)
        return BreakerReading(BreakerState.OPEN, left)

    def succeeded(self, model: str) -> None:
        """Close the breaker."""
        self._records.pop(model, None)

    def failed(self, model: str) -> None:
        """Count a failure; the third in a row opens the breaker."""
        record = self._records.pop(model, None) or _Record()
        self._records[model] = record  # the newest is last
        record.failures += 1
        record.is_probing = False
        if record.failures >= FAILURES_TO_OPEN:
            record.open_until = self.clock.monotonic() + COOL_DOWN_SECONDS
        if len(self._records) > MOST_RECORDS:
            self._records.pop(next(iter(self._records)))

    def released(self, model: str) -> None:
        """Count nothing; if this was the call that was to decide, the next one may."""
        record = self._records.get(model)
        if record is not None and record.is_probing:
            record.is_probing = False
            record.open_until = self.clock.monotonic()
