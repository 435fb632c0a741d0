"""Queues behind Slack's rate limits.

The calls behind one limit try one at a time, in order of arrival, until a call succeeds.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from throughline.domain.clock import Clock
from throughline.slack.slack_errors import SlackLimited

Key: TypeAlias = tuple[str, str]
"""Name of one rate limit of Slack: a method, and for chat.postMessage also the channel, else ''."""


@dataclass(slots=True)
class Waiting:
    """The calls that wait behind one rate limit. Times are monotonic seconds; `passed_at` is the last success."""

    until: float = 0.0
    passed_at: float = float("-inf")
    calls: int = 0
    first: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimits:
    """Queues, one for each rate limit in effect. A queue is removed once its call succeeded and no other call waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[Key, Waiting] = {}

    def is_limited(self, key: Key) -> bool:
        """Return whether a call must wait in a queue."""
        return key in self._lines

    def limit(self, key: Key, pause_seconds: float) -> None:
        """Block calls until the pause that Slack demands is over."""
        line = self._lines.setdefault(key, Waiting())
        line.until = max(line.until, self._clock.monotonic() + pause_seconds)

    def passed(self, key: Key) -> None:
        """Record that the first call of the queue succeeded, so that the next one may try."""
        line = self._lines[key]
        line.passed_at = self._clock.monotonic()
        if line.calls == 1:
            del self._lines[key]

    @asynccontextmanager
    async def in_line(self, key: Key, max_wait_seconds: float) -> AsyncGenerator[None]:
        """Wait until this call is the first of the queue, and keep that place while the context is open.

        Raises SlackLimited if other calls wait and `max_wait_seconds` is not above 0.
        """
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
        """Wait until the pause that Slack demands is over.

        Raises SlackLimited if it ends more than `gives_up_after_seconds` after `since` or after the last success of the
        queue, whichever is later.
        """
        line = self._lines[key]
        while self._left(line) > 0:
            if line.until > max(since, line.passed_at) + gives_up_after_seconds:
                raise SlackLimited(f"Slack limits {key[0]}.", delay_seconds=self._left(line))
            await self._clock.sleep(self._left(line))

    def _left(self, line: Waiting) -> float:
        return max(line.until - self._clock.monotonic(), 0.0)
