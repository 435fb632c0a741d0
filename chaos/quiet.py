"""Waiting until a database is quiet: all runs ended, all jobs too, or the time is over in which they must have."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg  # type: ignore[import-untyped]  # ships no types

from chaos.grounds import TIMEOUT_SECONDS
from chaos.stored import count_open_runs, read_jobs


async def until_quiet(url: str, *, seconds: float = TIMEOUT_SECONDS) -> float:
    """Return after how many seconds no run was open; `seconds` where some still are: the checker finds them."""
    return await _until_none(lambda: count_open_runs(url), seconds)


async def until_jobs_over(url: str, *, seconds: float) -> float:
    """Return after how many seconds no side job was in line or in hand; `seconds` where some still are."""

    async def count_open() -> int:
        return sum(job.status in {"queued", "picked"} for job in await read_jobs(url))

    return await _until_none(count_open, seconds)


async def _until_none(count: Callable[[], Awaitable[int]], seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < seconds:
        try:
            if await count() == 0:
                return loop.time() - began
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # it may be coming back from a crash
        await asyncio.sleep(0.1)
    return seconds
