"""Hearing Ctrl-C without being ended by it, while an answer is written."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_interrupt(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop at each Ctrl-C, and put back afterwards what stood before.

    Where the loop cannot listen to signals (not in the main thread) Ctrl-C keeps its usual meaning.
    """
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, callback)
    except (NotImplementedError, RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)
