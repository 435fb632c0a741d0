"""Computation over long texts in a few threads, so that one user's long text does not block the event loop."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from enum import Enum
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from throughline.domain.basic_types import UserId
from throughline.domain.message import Content, ImageBlock, Message, NewMessage
from throughline.domain.prompt import PromptMessage
from throughline.domain.reasoning import characters_in


class LimitReached(Enum):
    """Which limit is reached: the total or the owner's share."""

    BY_ALL = "by_all"
    BY_OWNER = "by_owner"


class OwnerLimits:
    """Counters of the amounts in use, in total and per owner, with a limit for each. Thread-safe."""

    def __init__(self, most: int, most_of_owner: int) -> None:
        """Allow `most` in total and `most_of_owner` per owner."""
        self.most = most
        self.most_of_owner = most_of_owner
        self._taken: Counter[UserId | None] = Counter()
        self._lock = threading.Lock()

    def take(self, owner_id: UserId | None, amount: int = 1) -> LimitReached | None:
        """Take `amount` and return None; if too little is left, take nothing and return the limit that is reached.

        Work without an owner (None) counts only towards the total.
        """
        with self._lock:
            if owner_id is not None and self._taken[owner_id] + amount > self.most_of_owner:
                return LimitReached.BY_OWNER
            if self._taken.total() + amount > self.most:
                return LimitReached.BY_ALL
            self._taken[owner_id] += amount
            return None

    def give_back(self, owner_id: UserId | None, amount: int = 1) -> None:
        """Return `amount` to the owner's share and the total."""
        with self._lock:
            self._taken -= Counter({owner_id: amount})  # removes owners whose amount is 0


T = TypeVar("T")

LARGE_CHARACTERS = 50_000
"""Text length from which work leaves the event loop: counting that many characters takes about 10 ms."""

DEFAULT_THREADS = 2
_owner: ContextVar[UserId | None] = ContextVar("owner", default=None)
_lines: WeakValueDictionary[UserId, asyncio.Semaphore] = WeakValueDictionary()
_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


@asynccontextmanager
async def compute_threads(number: int) -> AsyncGenerator[None]:
    """Provide `number` compute threads for the running loop inside the block; further work waits in a queue.

    Hundreds of turns may be open. With a thread for each, the event loop would get too small a share of the
    interpreter. The loop's default threads stay free for libraries (LangGraph's synchronous functions, name lookups).
    At the block's end queued work is cancelled. Running work is waited for when the process ends.
    """
    executor = _make_threads(asyncio.get_running_loop(), number)
    try:
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def work_for(owner_id: UserId) -> None:
    """Attribute the current task's computation, and that of tasks it starts, to this owner's queue."""
    _owner.set(owner_id)


def present_owner() -> UserId | None:
    """Return the owner that the current task works for, set by `work_for`; None for the service itself."""
    return _owner.get()


async def run_off_loop_if_large(characters: int, work: Callable[[], T], *, large: int = LARGE_CHARACTERS) -> T:
    """Return the result of `work`, run in a compute thread if it reads more than `large` characters.

    `work` must not change shared state, because it continues if the caller is cancelled. Each owner uses one of the few
    threads at a time, so that one owner's long texts do not delay the others'.
    """
    if characters <= large:
        return work()
    owner_id = _owner.get()
    if owner_id is None:  # the service's own work has no queue; its callers limit it
        return await run_in_compute_thread(work)
    line = _lines.setdefault(owner_id, asyncio.Semaphore(1))
    await line.acquire()
    return await run_in_compute_thread(work, line.release)


async def run_in_compute_thread(work: Callable[[], T], ended: Callable[[], None] | None = None) -> T:
    """Return the result of `work`, run in one of the threads of `compute_threads`.

    `ended` is called on the loop once the thread is free. After a cancel that is later than this call's end, because a
    thread cannot be stopped.
    """
    loop = asyncio.get_running_loop()
    threads = _threads.get(loop) or _make_threads(loop, DEFAULT_THREADS)
    future = threads.submit(copy_context().run, work)
    if ended is not None:
        future.add_done_callback(lambda _: _notify(loop, ended))
    return await asyncio.wrap_future(future)


def _make_threads(loop: asyncio.AbstractEventLoop, number: int) -> ThreadPoolExecutor:
    _threads[loop] = ThreadPoolExecutor(number, thread_name_prefix="compute")
    return _threads[loop]


def _notify(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, so nothing waits for the call
        loop.call_soon_threadsafe(ended)


def characters_of(messages: Iterable[Message | NewMessage | PromptMessage]) -> int:
    """Return the total characters of the messages' texts, their calls' arguments, and reasoning that is sent back."""
    return sum(
        _characters(message.content)
        + sum(len(call.arguments) for call in message.tool_calls)
        + (0 if message.reasoning is None else sum(map(characters_in, message.reasoning.parts)))
        for message in messages
    )


def _characters(content: Content) -> int:
    """Return the characters of a content's texts; images count 0, since they are not read."""
    if isinstance(content, str):
        return len(content)
    return sum(0 if isinstance(block, ImageBlock) else len(block.text) for block in content)
