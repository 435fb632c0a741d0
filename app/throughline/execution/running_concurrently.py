"""A background task that runs as long as an `async with` block."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def running_concurrently(
    work: Callable[[], Coroutine[object, object, object]], name: str
) -> AsyncGenerator[asyncio.Task[object]]:
    """Run `work` as a task inside the block; at the block's end cancel it and wait for it, ignoring its errors.

    `work` is called when the block begins: a context that is never entered leaves no coroutine behind.
    """
    task: asyncio.Task[object] = asyncio.create_task(work(), name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
