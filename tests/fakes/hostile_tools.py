"""Tools as an operator should not write them, named `fakes.hostile_tools:…` in agent files."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Coroutine

blocking = threading.Event()
"""Set once `block` holds its thread."""

let_go = threading.Event()
"""Ends `block`."""

holding = threading.Semaphore(0)
"""Released by each `hold_thread`."""

waiting = threading.Event()
"""Set once `tell_of_cancelling` waits."""

was_cancelled = threading.Event()
"""Set by `tell_of_cancelling`."""

asked_by: contextvars.ContextVar[str] = contextvars.ContextVar("asked_by", default="nobody")


async def swallow_cancellation() -> str:
    """Wait for ever, whatever happens."""
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # noqa: BLE001, S112  # the point of it
            continue


async def block() -> str:
    """Hold the thread until it is let go."""
    blocking.set()
    let_go.wait()
    return "let go"


def hold_thread() -> str:
    """Be a plain function that does not return until it is let go."""
    holding.release()
    let_go.wait()
    return "let go"


async def hold_thread_later() -> str:
    """Hold the thread in a coroutine until it is let go."""
    return hold_thread()


async def leave_a_thread_behind() -> str:
    """Return while a thread of the event loop still works."""
    asyncio.get_running_loop().run_in_executor(None, let_go.wait)
    return "done"


async def raise_and_leave_a_thread_behind() -> str:
    """Raise while a thread of the event loop still works."""
    asyncio.get_running_loop().run_in_executor(None, let_go.wait)
    raise OwnError


class Unreadable:
    """Cannot be made text."""

    def __str__(self) -> str:
        raise OwnError


async def return_what_will_not_be_text() -> bytes:
    """Return bytes that are no text."""
    return b"\xff"


def return_what_ends_the_process() -> object:
    """Return a value whose text raises what is no Exception."""
    return Unreadable()


def name_thread() -> str:
    """Be a plain function that returns."""
    return threading.current_thread().name


async def block_for_ever() -> str:
    """Hold the thread."""
    while True:
        time.sleep(3600)  # noqa: ASYNC251  # the point of it


async def interrupt() -> str:
    """Raise what ends a program."""
    raise KeyboardInterrupt


async def interrupt_later() -> str:
    """Leave a task behind that raises what ends a program."""

    async def raise_it() -> None:
        raise KeyboardInterrupt

    left = asyncio.create_task(raise_it())
    await asyncio.sleep(0.05)
    return f"done: {left.done()}"


async def leave() -> str:
    """Raise what ends a program."""
    raise SystemExit(3)


async def close_generator() -> str:
    """Raise what ends a coroutine."""
    raise GeneratorExit


class OwnError(BaseException):
    """An exception that is no `Exception`."""


async def raise_own() -> str:
    """Raise something disconnected of."""
    raise OwnError


async def stop_the_loop() -> str:
    """Stop the event loop it runs on."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return "still here"


async def cancel_everything() -> str:
    """Cancel every task it can see."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return "still here"


async def tell_of_cancelling() -> str:
    """Wait for ever, and tell when it is cancelled."""
    waiting.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        was_cancelled.set()
        raise
    return "never"


async def say_who_asks() -> str:
    """Read a context variable."""
    await asyncio.sleep(0)
    return asked_by.get()


def say_later() -> Coroutine[object, object, str]:
    """Be a plain function that returns a coroutine."""
    return say_who_asks()


async def say_where() -> str:
    """Name the thread."""
    return threading.current_thread().name
