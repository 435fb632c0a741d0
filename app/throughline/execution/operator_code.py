"""Calls functions of the operator's, tools and hooks, so that nothing they do can hurt the process or the turn.

A plain function runs in a thread of its own, a coroutine on an event loop beside the service's. Either may be slow,
block, raise anything and refuse to be cancelled: the caller waits for its time, and no other call waits longer for it.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable

from throughline.execution.off_loop import present_owner
from throughline.execution.operator_loops import FunctionOutcome, run_on_operator_loop
from throughline.execution.outcome import Raised, Returned, outcome_of, outcome_of_awaiting
from throughline.execution.owner_limits import OwnerLimits, Taken

MAX_THREADS = 1_000
"""Plain functions under way in a process: two for each turn that may be open (WORKER_CONCURRENCY), and few enough for
what systems and containers let a process have. What hangs keeps its place until the process ends."""

MAX_THREADS_OF_OWNER = 250
"""Of those, for the turns of one user: nobody's slow or hanging tools keep everybody else's from being called."""

_given_up: set[asyncio.Task[FunctionOutcome]] = set()
"""Cancelled calls that have not ended yet: a task nobody holds may be collected while it runs."""


class ThreadsTakenError(Exception):
    """As many plain functions as may be under way have not returned; the call was not begun."""


_places = OwnerLimits(MAX_THREADS, MAX_THREADS_OF_OWNER)


async def call_function(
    function: Callable[[], object], timeout_seconds: float, *, is_ours: bool = False
) -> FunctionOutcome | None:
    """Call `function` and, where it returns an awaitable, await that. Returns None if it has not ended in time.

    A coroutine is then cancelled and not waited for; a thread cannot be stopped and goes on unheard, as a daemon, so
    that it holds up neither other work nor the end of the process. `is_ours` keeps a coroutine function of the
    service's own on this event loop, where the database is.
    """
    task = asyncio.create_task(_call(function, is_ours=is_ours))
    try:
        await asyncio.wait({task}, timeout=timeout_seconds)
    finally:
        if not task.done():
            _give_up(task)
    if not task.done():
        return None
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


def _give_up(task: asyncio.Task[FunctionOutcome]) -> None:
    _given_up.add(task)
    task.add_done_callback(_given_up.discard)
    task.cancel()


async def _call(function: Callable[[], object], *, is_ours: bool) -> FunctionOutcome:
    variables = contextvars.copy_context()
    if _is_coroutine_function(function):
        if is_ours:
            return await outcome_of_awaiting(_awaited(function))
        return await run_on_operator_loop(function, variables)
    outcome = await _call_in_thread(function, variables)
    if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
        return await run_on_operator_loop(functools.partial(_same, outcome.value), variables)
    return outcome


def _is_coroutine_function(function: Callable[[], object]) -> bool:
    """Look through a partial, and at what is called where an object is."""
    called = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(getattr(called, "__call__", None))  # noqa: B004  # not whether it can be called, but how


async def _awaited(function: Callable[[], object]) -> object:
    made = function()
    assert inspect.isawaitable(made)
    return await made


def _same(value: Awaitable[object]) -> Awaitable[object]:
    return value


async def _call_in_thread(function: Callable[[], object], variables: contextvars.Context) -> FunctionOutcome:
    """Not the loop's executor: its few threads are everybody's, and the process would wait for them at its end."""
    owner_id = present_owner()
    taken = _places.take(owner_id)
    if taken is not None:
        return Raised(ThreadsTakenError(_why(taken)))
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[FunctionOutcome] = loop.create_future()

    def work() -> None:
        outcome = outcome_of(lambda: variables.run(function), catching=BaseException)  # the waiting turn hears of all
        _places.give_back(owner_id)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody listens any more
            loop.call_soon_threadsafe(_tell, ended, outcome)

    try:
        threading.Thread(target=work, name="operator function", daemon=True).start()
    except RuntimeError as error:  # the system gives the process no further one
        _places.give_back(owner_id)
        return Raised(error)
    return await ended


def _why(taken: Taken) -> str:
    match taken:
        case Taken.BY_ALL:
            return f"{MAX_THREADS} calls of tools are under way in this process, the most it takes"
        case Taken.BY_OWNER:
            return f"{MAX_THREADS_OF_OWNER} calls of this user are under way, the most of one"


def _tell(ended: asyncio.Future[FunctionOutcome], outcome: FunctionOutcome) -> None:
    if not ended.done():
        ended.set_result(outcome)
