"""The real service with a ticker on its event loop: `python -m benchmarks.ticking_service serve …`, as `throughline`.

The ticker wants to run every TICK_SECONDS; how much later it runs is how long the loop answered nobody.
"""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path

import uvloop

import app.main

FILE = "TICKER_FILE"
"""The environment variable that names the file for the longest stall, in milliseconds, and how many there
were. Nothing is noted before it exists: a service that starts is not measured."""

TICK_SECONDS = 0.01
COUNTED_MS = 50.0


class Ticker:
    """Notes the longest stall and how many were longer than COUNTED_MS."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        """Tick from the first turn of the loop on."""
        self._loop = loop
        self._file = file
        self._longest_ms = 0.0
        self._count = 0
        self._due = loop.time()

    def tick(self) -> None:
        """Note how late this is, and come again."""
        late_ms = (self._loop.time() - self._due) * 1000
        if self._file.exists() and (late_ms > self._longest_ms or late_ms > COUNTED_MS):
            self._count += late_ms > COUNTED_MS
            self._longest_ms = max(late_ms, self._longest_ms)
            self._file.write_text(f"{self._longest_ms:.1f} {self._count}")
        self._due = self._loop.time() + TICK_SECONDS
        self._loop.call_at(self._due, self.tick)


def main() -> None:
    """Run the command line of the service on a loop that ticks."""

    def run(program: Coroutine[object, object, int]) -> int:
        with asyncio.Runner(loop_factory=ticking_loop) as runner:
            return runner.run(program)

    def ticking_loop() -> uvloop.Loop:
        loop = uvloop.new_event_loop()
        ticker = Ticker(loop, Path(os.environ[FILE]))
        loop.call_soon(ticker.tick)
        return loop

    setattr(uvloop, "run", run)  # noqa: B010  # the program has no other way to its loop, and types its own
    app.main.main()


if __name__ == "__main__":
    main()
