"""A clock that only moves when somebody sleeps on it."""

import asyncio
from datetime import UTC, datetime, timedelta

from fakes.waiting import LOOK_SECONDS


class ManualClock:
    """`sleep` returns at once and moves the time; `slept` keeps what was asked for."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._seconds += seconds
        await asyncio.sleep(0)


class PassingClock(ManualClock):
    """Time passes for whoever sleeps on it, a little of it for everybody else: for loops that look now and then."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await asyncio.sleep(LOOK_SECONDS)


class HeldClock(ManualClock):
    """Nobody's sleep is over before the test has let enough time pass."""

    async def sleep(self, seconds: float) -> None:
        ends = self.monotonic() + seconds
        while self.monotonic() < ends:
            await asyncio.sleep(LOOK_SECONDS)
