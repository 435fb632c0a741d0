"""Lets something go on beside a block, and leaves nothing of it behind."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def running_concurrently(
    work: Coroutine[object, object, object], name: str
) -> AsyncGenerator[asyncio.Task[object]]:
    """Run `work` as a task inside the block; at its end it is cancelled and waited for, whatever it raises."""
    task: asyncio.Task[object] = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
