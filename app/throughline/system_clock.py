"""The real clock."""

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """The real clock; everybody else is handed this one."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)  # noqa: TID251  # this is the clock that others ask

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
