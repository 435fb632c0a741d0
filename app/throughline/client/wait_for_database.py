"""Waiting on while the database is away: after a restart it is back within seconds, with all that was waited for."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog

from throughline.domain.errors import DatabaseUnavailable

PAUSE_SECONDS = 1.0
SAME_OUTAGE_SECONDS = 30.0
"""Failures closer together are one outage: a try over a network that answers nothing takes nearly as long."""

log = structlog.get_logger(__name__)


class Outage:
    """Counts how long the database has been away, for one that waits."""

    def __init__(self, longest_seconds: float, monotonic: Callable[[], float]) -> None:
        """After `longest_seconds` an outage is no longer waited out; `monotonic` returns seconds."""
        self._longest_seconds = longest_seconds
        self._monotonic = monotonic
        self._since = self._last = float("-inf")

    @asynccontextmanager
    async def outlasting(self) -> AsyncGenerator[None]:
        """Try what is in the block; where the database is away, it ends when the next try is due.

        Raises DatabaseUnavailable once the outage takes too long.
        """
        try:
            yield
        except DatabaseUnavailable as error:
            await self._outlast(error)

    async def _outlast(self, error: DatabaseUnavailable) -> None:
        now = self._monotonic()
        if now - self._last > SAME_OUTAGE_SECONDS:
            self._since = now
        self._last = now
        seconds_left = self._since + self._longest_seconds - now
        if seconds_left <= 0:
            raise error
        log.info("the database is away, waiting goes on", seconds_left=seconds_left)
        pause = PAUSE_SECONDS * (0.5 + random.random())  # noqa: S311  # spreads tries, guards no secret
        await asyncio.sleep(min(pause, seconds_left))
