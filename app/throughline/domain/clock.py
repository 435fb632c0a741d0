"""The interface through which all layers read the time. `assembly/` passes the real clock, tests pass their own."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, monotonic time and sleeping."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes backwards, for measuring durations."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`, as the tests or the operating system count them."""
