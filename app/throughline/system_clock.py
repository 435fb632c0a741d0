"""The real clock of the process."""

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """The real clock. All other code gets it passed in as a `Clock`."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)  # noqa: TID251  # the only code that may read the clock

    def monotonic(self) -> float:
        """Return the seconds of a clock that never runs backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
