"""The real service, which notes how long its event loop answered nobody; started as `throughline` is.

A ticker wants to run every TICK_SECONDS: how much later it runs is a stall. Each second the longest one is added, as a
line of milliseconds, to the file that NOTES_FILE names, once that file exists.
"""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path

import uvloop

import throughline.main

FILE = "NOTES_FILE"
TICK_SECONDS = 0.01
NOTE_SECONDS = 1.0


def read_stalls(file: Path) -> list[float]:
    """Return what was noted since this was called before; from the first call on it is noted at all."""
    lines = file.read_text().splitlines() if file.exists() else []
    file.write_text("")
    return [float(line) for line in lines]


class Ticker:
    """Measures the loop, and appends a line each second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        """Measure from the first turn of the loop on."""
        self._loop, self._file = loop, file
        self._longest_ms = 0.0
        self._due = self._note_at = loop.time()

    def tick(self) -> None:
        """Note how late this is, and come again."""
        now = self._loop.time()
        self._longest_ms = max(self._longest_ms, (now - self._due) * 1000)
        if now >= self._note_at:
            if self._file.exists():
                with self._file.open("a") as file:
                    file.write(f"{self._longest_ms}\n")
            self._longest_ms, self._note_at = 0.0, now + NOTE_SECONDS
        self._due = self._loop.time() + TICK_SECONDS
        self._loop.call_at(self._due, self.tick)


def main() -> None:
    """Run the command line of the service on a loop that is measured."""

    def run(program: Coroutine[object, object, int]) -> int:
        with asyncio.Runner(loop_factory=measured_loop) as runner:
            return runner.run(program)

    def measured_loop() -> uvloop.Loop:
        loop = uvloop.new_event_loop()
        loop.call_soon(Ticker(loop, Path(os.environ[FILE])).tick)
        return loop

    setattr(uvloop, "run", run)  # noqa: B010  # the program has no other way to its loop, and types its own
    throughline.main.main()
