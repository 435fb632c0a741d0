"""How a layer asks for the time; the real clock is handed in from the top, tests hand in their own."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time and waiting."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for measuring durations."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
