"""Event loops for the operator's coroutines, each in a daemon thread, beside the service's own event loop.

All calls share the first loop, as what they keep between calls (HTTP clients, locks) belongs to the loop it was made
on. A coroutine that blocks its thread stops that loop: calls that find it so go to the next one, until it answers
again. So one function that blocks costs others a moment; a loop for each call would cost every function its clients.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from throughline.execution.outcome import Outcome, Raised, outcome_of_awaiting

ANSWER_SECONDS = 2.0
"""A loop that has not begun a call within this time counts as blocked; far more than an answering one needs."""

MAX_LOOPS = 8
"""The most loops of a process: as many calls can block at once before further ones fail."""


FunctionOutcome: TypeAlias = Outcome[object]
_T = TypeVar("_T")


class EventLoopsBlockedError(Exception):
    """Every loop is blocked by a coroutine that does not let go of its thread; the call was not begun."""


async def run_on_operator_loop(function: Callable[[], object], variables: contextvars.Context) -> FunctionOutcome:
    """Call `function` on the first loop that answers, with these context variables, and await what it returns.

    Cancelling takes the call back where it has not begun, else cancels it there without waiting for it.
    """
    while (loop := _LOOPS.choose()) is not None:
        call = _Call(function, variables)
        try:
            loop.submit(call)
            if await call.has_begun():
                return await call.ended
        finally:
            call.give_up(loop)
        loop.mark_blocked()
    return Raised(EventLoopsBlockedError())


class _Call:
    """One call on its way to a loop: it either begins there or is taken back, never both."""

    def __init__(self, function: Callable[[], object], variables: contextvars.Context) -> None:
        self.ended: asyncio.Future[FunctionOutcome] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._function = function
        self._variables = variables
        self._decided = threading.Lock()  # whoever takes it first decides, the caller or the loop
        self._task: asyncio.Task[FunctionOutcome] | None = None

    async def has_begun(self) -> bool:
        """Whether the loop has begun the call; where it has not within its time, it will not any more."""
        await asyncio.wait({self._begun}, timeout=ANSWER_SECONDS)
        return not self._decided.acquire(blocking=False)

    def give_up(self, loop: "_Loop") -> None:
        """Called when nobody waits any more: the call is taken back or, in its own thread, cancelled."""
        is_answered = self.ended.done() and not self.ended.cancelled()
        if not is_answered and not self._decided.acquire(blocking=False):
            loop.call_soon(self._cancel)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, unless the caller has taken the call back. Called by the loop, in its thread."""
        if not self._decided.acquire(blocking=False):
            return
        self._task = loop.create_task(self._run(), context=self._variables)
        self._task.add_done_callback(self._tell_ended)
        _tell(self._begun, None)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> FunctionOutcome:
        return await outcome_of_awaiting(self._called(), catching=BaseException)  # nothing may end the loop's thread

    async def _called(self) -> object:
        made = self._function()
        return await made if inspect.isawaitable(made) else made

    def _tell_ended(self, task: asyncio.Task[FunctionOutcome]) -> None:
        _tell(self.ended, Raised(asyncio.CancelledError()) if task.cancelled() else task.result())


def _tell(future: asyncio.Future[_T], value: _T) -> None:
    """Set the result from another thread than the future's loop."""

    def settle() -> None:
        if not future.done():
            future.set_result(value)

    with contextlib.suppress(RuntimeError):  # the service's loop is closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(settle)


class _Loop:
    """An event loop in a daemon thread of its own; it runs as long as the process."""

    def __init__(self) -> None:
        self.is_blocked = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="operator event loop", daemon=True).start()

    def submit(self, call: _Call) -> None:
        """Have the call begun as soon as the loop comes to it."""
        self.call_soon(functools.partial(call.begin, self._loop))

    def mark_blocked(self) -> None:
        """Have no more calls sent here until the loop comes to what is waiting for it."""

        def answer() -> None:
            self.is_blocked = False

        self.is_blocked = True
        self.call_soon(answer)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's thread."""
        with contextlib.suppress(RuntimeError):  # closed from within: nothing begins there any more
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._loop.is_closed():
            with contextlib.suppress(BaseException):  # a task's KeyboardInterrupt, or `loop.stop()` from within
                self._loop.run_forever()


class _Loops:
    """The process's loops, made when they are first needed."""

    def __init__(self) -> None:
        self._made: list[_Loop] = []

    def choose(self) -> _Loop | None:
        """Return the first loop that is not known to be blocked, else a new one; None where there are too many."""
        for loop in self._made:
            if not loop.is_blocked:
                return loop
        if len(self._made) == MAX_LOOPS:
            return None
        self._made.append(_Loop())
        return self._made[-1]


_LOOPS = _Loops()
