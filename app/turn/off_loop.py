"""Where work over long texts is done: beside the event loop, so that one user's text makes nobody else wait."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from app.domain.ids import UserId
from app.domain.message import Content, ImageBlock, Message, NewMessage
from app.domain.prompt import PromptMessage

T = TypeVar("T")

LARGE_CHARACTERS = 50_000
"""From this length on work leaves the event loop: counting so much takes about 10 ms, cutting it into terms 25."""

_owner: ContextVar[UserId | None] = ContextVar("owner", default=None)
_lines: WeakValueDictionary[UserId, asyncio.Semaphore] = WeakValueDictionary()
_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


@asynccontextmanager
async def compute_threads(number: int) -> AsyncGenerator[None]:
    """Let the running loop have so many threads for long texts inside the block; further work waits in line.

    Hundreds of turns may be open. If each of them computed in a thread of its own, the event loop, which needs the
    interpreter as they do, would get a small share of it and answer nobody in time. The loop's own threads stay for
    what libraries do in them (LangGraph's synchronous functions, name lookups): that waits for no long text.
    What still waits for a thread at the end of the block is cancelled.
    """
    executor = _threads[asyncio.get_running_loop()] = ThreadPoolExecutor(number, thread_name_prefix="compute")
    try:
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def work_for(owner_id: UserId) -> None:
    """Let what the present task, and what it starts, does beside the loop stand in this owner's line."""
    _owner.set(owner_id)


async def run_off_loop_if_large(characters: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; it runs in a thread where it reads more than `LARGE_CHARACTERS`.

    It must change nothing that others see: whoever waits here may be cancelled while it goes on. The threads are few,
    and each owner has one of them at a time, so that nobody's long texts wait behind all those of somebody else.
    """
    if characters <= LARGE_CHARACTERS:
        return work()
    async with _line_of(_owner.get()):
        return await run_in_compute_thread(work)


async def run_in_compute_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns, from one of the threads of `compute_threads`."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads.get(loop), copy_context().run, work)


def _line_of(owner_id: UserId | None) -> AbstractAsyncContextManager[object]:
    """Work of the service's own stands in no line; it is bounded where it is begun."""
    if owner_id is None:
        return nullcontext()
    return _lines.setdefault(owner_id, asyncio.Semaphore(1))


def characters_of(messages: Iterable[Message | NewMessage | PromptMessage]) -> int:
    """Return the characters of the messages' texts and of their calls' arguments."""
    return sum(
        _characters(message.content) + sum(len(call.arguments) for call in message.tool_calls) for message in messages
    )


def _characters(content: Content) -> int:
    """An image has none: it is not read."""
    if isinstance(content, str):
        return len(content)
    return sum(0 if isinstance(block, ImageBlock) else len(block.text) for block in content)
