"""Waiting until a database is quiet: all runs ended, or the time is over in which they must have."""

import asyncio

import asyncpg  # type: ignore[import-untyped]  # ships no types

from chaos.grounds import TIMEOUT_SECONDS
from chaos.stored import count_open_runs


async def until_quiet(url: str, *, seconds: float = TIMEOUT_SECONDS) -> float:
    """Return after how many seconds no run was open; `seconds` where some still are: the checker finds them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < seconds:
        try:
            if await count_open_runs(url) == 0:
                return loop.time() - began
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # it may be coming back from a crash
        await asyncio.sleep(0.1)
    return seconds
