"""Calls a tool's function so that nothing it does can hurt the turn: not slowness, not exceptions, not blocking."""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised; its exception travels as a value and can end nothing."""

    error: BaseException


Ending: TypeAlias = Returned | Raised

_given_up: set[asyncio.Task[Ending]] = set()
"""Cancelled calls that have not ended yet: a task nobody holds may be collected while it runs."""


async def call_function(function: Callable[[], object], timeout_seconds: float) -> Ending | None:
    """Call `function`, on the event loop if it is a coroutine function, else in a thread of its own.

    Returns None if it has not ended in time. A coroutine is then cancelled and not waited for; a thread cannot be
    stopped and goes on unheard, as a daemon, so that it neither blocks other work nor the end of the process.
    """
    task = asyncio.create_task(_call(function))
    try:
        await asyncio.wait({task}, timeout=timeout_seconds)
    finally:
        if not task.done():
            _give_up(task)
    if not task.done():
        return None
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


def _give_up(task: asyncio.Task[Ending]) -> None:
    _given_up.add(task)
    task.add_done_callback(_given_up.discard)
    task.cancel()


async def _call(function: Callable[[], object]) -> Ending:
    if inspect.iscoroutinefunction(function):
        made = function()
        assert inspect.iscoroutine(made)
        return await _await(made)
    ending = await _call_in_thread(function)
    if isinstance(ending, Returned) and inspect.iscoroutine(ending.value):
        return await _await(ending.value)
    return ending


async def _await(coroutine: Coroutine[object, object, object]) -> Ending:
    try:
        return Returned(await coroutine)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a tool may raise anything; the outcome says what
        return Raised(error)


async def _call_in_thread(function: Callable[[], object]) -> Ending:
    """Not the loop's executor: its few threads are everybody's, and the process would wait for them at its end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ending] = loop.create_future()
    variables = contextvars.copy_context()

    def work() -> None:
        ending = _end(lambda: variables.run(function))
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody listens any more
            loop.call_soon_threadsafe(_tell, ended, ending)

    threading.Thread(target=work, name="tool", daemon=True).start()
    return await ended


def _end(function: Callable[[], object]) -> Ending:
    try:
        return Returned(function())
    except BaseException as error:  # noqa: BLE001  # nothing may end the thread without word to the waiting turn
        return Raised(error)


def _tell(ended: asyncio.Future[Ending], ending: Ending) -> None:
    if not ended.done():
        ended.set_result(ending)
