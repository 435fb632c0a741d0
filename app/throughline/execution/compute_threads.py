"""Where work over long texts is done: beside the event loop, so that one user's text makes nobody else wait."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from throughline.domain.ids import UserId
from throughline.domain.message import Content, ImageBlock, Message, NewMessage
from throughline.domain.prompt import PromptMessage

T = TypeVar("T")

LARGE_CHARACTERS = 50_000
"""From this length on work leaves the event loop: counting so much takes about 10 ms."""

DEFAULT_THREADS = 2
_owner: ContextVar[UserId | None] = ContextVar("owner", default=None)
_lines: WeakValueDictionary[UserId, asyncio.Semaphore] = WeakValueDictionary()
_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


@asynccontextmanager
async def compute_threads(number: int) -> AsyncGenerator[None]:
    """Let the running loop have so many threads for long texts inside the block; further work waits in line.

    Hundreds of turns may be open. If each of them computed in a thread of its own, the event loop, which needs the
    interpreter as they do, would get a small share of it and answer nobody in time. The loop's own threads stay for
    what libraries do in them (LangGraph's synchronous functions, name lookups): that waits for no long text.
    What still waits for a thread at the end of the block is cancelled; what runs in one is waited for when the process
    ends.
    """
    executor = _make_threads(asyncio.get_running_loop(), number)
    try:
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def work_for(owner_id: UserId) -> None:
    """Let what the present task, and what it starts, does beside the loop stand in this owner's line."""
    _owner.set(owner_id)


def present_owner() -> UserId | None:
    """Return for whom the present task works, as `work_for` was told; None for the service itself."""
    return _owner.get()


async def run_off_loop_if_large(characters: int, work: Callable[[], T], *, large: int = LARGE_CHARACTERS) -> T:
    """Return what `work` returns; it runs in a thread where it reads more than `large` characters.

    It must change nothing that others see: whoever waits here may be cancelled while it goes on. The threads are few,
    and each owner has one of them at a time, so that nobody's long texts wait behind all those of somebody else.
    """
    if characters <= large:
        return work()
    owner_id = _owner.get()
    if owner_id is None:  # work of the service's own stands in no line; it is bounded where it is begun
        return await run_in_compute_thread(work)
    line = _lines.setdefault(owner_id, asyncio.Semaphore(1))
    await line.acquire()
    return await run_in_compute_thread(work, line.release)


async def run_in_compute_thread(work: Callable[[], T], ended: Callable[[], None] | None = None) -> T:
    """Return what `work` returns, from one of the threads of `compute_threads`.

    `ended` is called on the loop once the thread is free: later than the end of this call where that is cancelled,
    for a thread cannot be stopped.
    """
    loop = asyncio.get_running_loop()
    threads = _threads.get(loop) or _make_threads(loop, DEFAULT_THREADS)
    future = threads.submit(copy_context().run, work)
    if ended is not None:
        future.add_done_callback(lambda _: _send(loop, ended))
    return await asyncio.wrap_future(future)


def _make_threads(loop: asyncio.AbstractEventLoop, number: int) -> ThreadPoolExecutor:
    _threads[loop] = ThreadPoolExecutor(number, thread_name_prefix="compute")
    return _threads[loop]


def _send(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is gone: nobody waits any more
        loop.call_soon_threadsafe(ended)


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
