"""How long tests wait for what must come: one generous limit in one place, so that no test needs a quiet machine.

A test that is about a limit of the service sets that limit itself, short, and then judges what came first. Everything
else waits for its condition and would wait HANG_SECONDS only if it never came."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

HANG_SECONDS = 240.0
"""After so long a wait is a hang. Below the limit pytest sets for a whole test, so that the test itself can tell."""

LOOK_SECONDS = 0.02


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds. Raises TimeoutError after HANG_SECONDS."""

    async def holds() -> bool:
        return condition()

    await until_found(holds)


async def until_found(look: Callable[[], Awaitable[object]]) -> None:
    """Return once `look` returns something true; it may ask a database or a service. Raises TimeoutError."""
    async with asyncio.timeout(HANG_SECONDS):
        while not await look():
            await asyncio.sleep(LOOK_SECONDS)


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
    """Time passes for each sleeper on it, a little of it for everybody else: for loops that look now and then."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await asyncio.sleep(LOOK_SECONDS)


class HeldClock(ManualClock):
    """Nobody's sleep is over before the test has let enough time pass."""

    async def sleep(self, seconds: float) -> None:
        ends = self.monotonic() + seconds
        while self.monotonic() < ends:
            await asyncio.sleep(LOOK_SECONDS)
