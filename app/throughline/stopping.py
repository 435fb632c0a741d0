"""Signals that stop a program, during its start and while it runs."""

import asyncio
import signal
from collections.abc import Sequence


async def first_of(*events: asyncio.Event) -> None:
    """Return once any of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def ignore_hangup() -> None:
    """Ignore SIGHUP from now on; programs that this process starts do not inherit that."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def command_ignoring_hangup(command: Sequence[str]) -> list[str]:
    """Return a command whose program ignores SIGHUP from its first moment, until it calls `ignore_hangup`.

    A shell sets that: libuv, which starts programs for uvloop, resets all signals.
    """
    return ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command]


class Stopping:
    """Handler of SIGINT and SIGTERM, which sets `asked`.

    A program that is still starting is cancelled as well, because a start may take long.
    """

    def __init__(self) -> None:
        """Install the handler. Call this in the program's main task, which is cancelled during the start."""
        self.asked = asyncio.Event()
        self._starting = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def started(self) -> None:
        """Record that the start is complete: from now on a signal only sets `asked` and cancels nothing."""
        self._starting = None

    def stop(self) -> None:
        """Ask the program to stop, as a signal does."""
        self.asked.set()
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None  # a second signal must not cut short what ends the program
