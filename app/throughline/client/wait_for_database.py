"""Waiting while the database is unavailable. After a restart it is back within seconds, with all its data."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog

from throughline.domain.errors import DatabaseUnavailable

PAUSE_SECONDS = 1.0
SAME_OUTAGE_SECONDS = 30.0
"""Failures at most this many seconds apart belong to one outage.

A try over a network that answers nothing takes nearly as long.
"""

log = structlog.get_logger(__name__)


class Outage:
    """Duration of the present outage of the database, as one waiting call sees it."""

    def __init__(self, longest_seconds: float, monotonic: Callable[[], float]) -> None:
        """Wait out an outage for `longest_seconds` at most. `monotonic` returns the time in seconds."""
        self._longest_seconds = longest_seconds
        self._monotonic = monotonic
        self._since = self._last = float("-inf")

    @asynccontextmanager
    async def wait_out(self) -> AsyncGenerator[None]:
        """Suppress DatabaseUnavailable raised in the context, and return about a second later for the next try.

        Raises it once the outage has lasted `longest_seconds`.
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
        log.info("client waiting for database", seconds_left=seconds_left)
        pause = PAUSE_SECONDS * (0.5 + random.random())  # noqa: S311  # spreads retries, not for security
        await asyncio.sleep(min(pause, seconds_left))
