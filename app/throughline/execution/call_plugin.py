"""Calls of plugins: tools, hooks and token counters that operators write.

Each call gets a daemon thread, and an awaitable is run there by an event loop of its own. A plugin may block, hang,
raise anything and ignore its cancellation: it costs its thread and the time limit of its caller, and nobody else.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from throughline.execution.compute_threads import present_owner
from throughline.execution.outcome import Outcome, Raised, Returned, outcome_of
from throughline.execution.owner_limits import OwnerLimits, Taken

T = TypeVar("T")

MAX_THREADS = 1_000
"""Plugin calls under way in a process: two for each turn that may be open (WORKER_CONCURRENCY), and few enough for
what systems and containers let a process have. A call that hangs keeps its thread until the process ends."""

MAX_THREADS_OF_OWNER = 250
"""The share of one user: nobody's slow or hanging plugins keep those of others from being called."""

_threads = OwnerLimits(MAX_THREADS, MAX_THREADS_OF_OWNER)


class PluginTimedOut(Exception):
    """The plugin has not returned within its time limit."""


class ThreadLimitReached(Exception):
    """No thread was free for the plugin, which was not called."""


async def call_plugin(
    function: Callable[[], object], read: Callable[[object], T], timeout_seconds: float
) -> Outcome[T]:
    """Call `function`, await what it returns if that is awaitable, and return what `read` makes of the result.

    `read` runs in the plugin's thread, as a plugin's values may run its code.
    """
    return await PluginCall(function, read).outcome(timeout_seconds)


class PluginCall(Generic[T]):
    """One call of a plugin, with the context variables of its caller.

    A call that is given up is cancelled if it awaits something. A thread cannot be stopped: it goes on unheard.
    """

    def __init__(self, function: Callable[[], object], read: Callable[[object], T]) -> None:
        """Prepare the call; `outcome` or `wait` begins it."""
        self._function = function
        self._read = read
        self._owner_id = present_owner()
        self._outcome: Future[Outcome[T]] = Future()
        self._is_given_up = False
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name="plugin", daemon=True
        )

    @property
    def is_hanging(self) -> bool:
        """Whether the call was given up and still holds its thread."""
        return self._is_given_up and self._thread.is_alive()

    async def outcome(self, timeout_seconds: float) -> Outcome[T]:
        """Return the outcome, or PluginTimedOut or ThreadLimitReached as what was raised."""
        self._begin()
        outcome = asyncio.wrap_future(self._outcome)
        try:
            await asyncio.wait({outcome}, timeout=timeout_seconds)
            return outcome.result() if outcome.done() else Raised(PluginTimedOut())
        finally:
            if not outcome.done():
                self._give_up()
                outcome.cancel()

    def wait(self, timeout_seconds: float) -> Outcome[T]:
        """Return the outcome as `outcome` does, blocking the calling thread."""
        self._begin()
        try:
            return self._outcome.result(timeout_seconds)
        except TimeoutError:
            self._give_up()
            return Raised(PluginTimedOut())

    def _begin(self) -> None:
        taken = _threads.take(self._owner_id)
        if taken is not None:
            self._settle(Raised(ThreadLimitReached(_reason(taken))))
            return
        try:
            self._thread.start()
        except RuntimeError:
            _threads.give_back(self._owner_id)
            self._settle(Raised(ThreadLimitReached("the system gives this process no further thread")))

    def _give_up(self) -> None:
        self._is_given_up = True  # before `_cancel` is read: the thread sets `_cancel` before it reads this
        self._outcome.cancel()
        if self._cancel is not None:
            with contextlib.suppress(RuntimeError):  # the plugin's event loop has ended
                self._cancel()

    def _run(self) -> None:
        """Run in the plugin's thread."""
        if self._outcome.set_running_or_notify_cancel():
            self._settle(outcome_of(self._call))
        _threads.give_back(self._owner_id)

    def _call(self) -> T:
        made = self._function()
        return asyncio.run(self._await(made)) if inspect.isawaitable(made) else self._read(made)

    async def _await(self, made: Awaitable[object]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._cancel = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        if self._is_given_up:
            task.cancel()
        try:  # settled before the event loop ends, which waits for what the plugin left behind
            value = self._read(await made)
        except BaseException as error:
            self._settle(Raised(error))
            raise
        self._settle(Returned(value))
        return value

    def _settle(self, outcome: Outcome[T]) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)


def _reason(taken: Taken) -> str:
    match taken:
        case Taken.BY_ALL:
            return f"{MAX_THREADS} plugin calls are under way in this process, the most it takes"
        case Taken.BY_OWNER:
            return f"{MAX_THREADS_OF_OWNER} plugin calls of this user are under way, the most of one"
