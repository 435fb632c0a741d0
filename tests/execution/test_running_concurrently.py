"""A background task runs as long as its block, and a block that is never entered begins none."""

import asyncio
from collections.abc import Coroutine

from throughline.execution.error_boundary import running_concurrently


async def test_the_task_is_cancelled_at_the_end_of_the_block() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with running_concurrently(work, "wait") as task:
        await begun.wait()

    assert task.cancelled()


async def test_a_block_that_is_never_entered_begins_nothing() -> None:
    calls: list[str] = []

    def begin() -> Coroutine[object, object, None]:
        calls.append("begun")
        return asyncio.sleep(0)

    running_concurrently(begin, "nothing")

    assert calls == []
