"""A clock that only moves when somebody sleeps on it."""

import asyncio
from datetime import UTC, datetime, timedelta


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
