"""How long tests wait for what must come: one generous limit in one place, so that no test needs a quiet machine.

A test that is about a limit of the service sets that limit itself, short, and then judges what came first. Everything
else waits for its condition and would wait HANG_SECONDS only if it never came.
"""

import asyncio
from collections.abc import Awaitable, Callable

HANG_SECONDS = 90.0
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
