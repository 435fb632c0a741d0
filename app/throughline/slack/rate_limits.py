"""Waiting behind a rate limit of Slack's: one call at a time tries, in their order, until one comes through."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from throughline.domain.clock import Clock
from throughline.slack.slack_errors import SlackLimited

Key: TypeAlias = tuple[str, str]
"""What Slack limits by itself in one workspace: a method, of chat.postMessage each channel."""


@dataclass(slots=True)
class Waiting:
    """The calls that wait behind one limit. Times are of the clock, in seconds; `passed_at` is of the last success."""

    until: float = 0.0
    passed_at: float = float("-inf")
    calls: int = 0
    first: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimits:
    """Keeps a line for each limit that was met, until somebody came through and nobody waits behind."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is limited before `limit`."""
        self._clock = clock
        self._lines: dict[Key, Waiting] = {}

    def is_limited(self, key: Key) -> bool:
        """Whether a call has to stand in line."""
        return key in self._lines

    def limit(self, key: Key, pause_seconds: float) -> None:
        """Let nobody call before the pause is over that Slack has named."""
        line = self._lines.setdefault(key, Waiting())
        line.until = max(line.until, self._clock.monotonic() + pause_seconds)

    def passed(self, key: Key) -> None:
        """Let the next in line try: a call of the first came through."""
        line = self._lines[key]
        line.passed_at = self._clock.monotonic()
        if line.calls == 1:
            del self._lines[key]

    @asynccontextmanager
    async def in_line(self, key: Key, max_wait_seconds: float) -> AsyncGenerator[None]:
        """Be the first in line inside the block. Raises SlackLimited where others wait and the caller does not."""
        line = self._lines.setdefault(key, Waiting())
        if line.calls and max_wait_seconds <= 0:
            raise SlackLimited(f"Others wait for {key[0]}.", delay_seconds=self._left(line))
        line.calls += 1
        try:
            async with line.first:
                yield
        finally:
            line.calls -= 1

    async def pause(self, key: Key, gives_up_after_seconds: float, since: float) -> None:
        """Wait out what Slack named.

        Raises SlackLimited where it ends later than the caller waits: so long since it came, or since somebody of the
        line came through.
        """
        line = self._lines[key]
        while self._left(line) > 0:
            if line.until > max(since, line.passed_at) + gives_up_after_seconds:
                raise SlackLimited(f"Slack limits {key[0]}.", delay_seconds=self._left(line))
            await self._clock.sleep(self._left(line))

    def _left(self, line: Waiting) -> float:
        return max(line.until - self._clock.monotonic(), 0.0)
