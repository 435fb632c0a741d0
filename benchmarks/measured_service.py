"""The real service, which notes what its collector and its loop cost: `python -m benchmarks.measured_service serve …`.

A ticker wants to run every TICK_SECONDS; how much later it runs is how long the loop answered nobody. Each second a
line is added to the file that NOTES_FILE names, a JSON object of `Second`'s fields, once that file exists.
"""

import asyncio
import gc
import json
import os
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

import throughline.main

FILE = "NOTES_FILE"
TICK_SECONDS = 0.01
NOTE_SECONDS = 1.0
STALL_MS = 50.0
"""From here on a stall is counted."""


@dataclass(slots=True)
class Second:
    """What one second cost: the collector's passes, their time and the longest, the longest stall of the loop."""

    passes: int = 0
    full_passes: int = 0
    collector_seconds: float = 0.0
    longest_pass_ms: float = 0.0
    longest_stall_ms: float = 0.0
    stalls: int = 0


def read_notes(file: Path) -> list[Second]:
    """Return what was noted since this was called before; from the first call on it is noted at all."""
    lines = file.read_text().splitlines() if file.exists() else []
    file.write_text("")
    return [Second(**json.loads(line)) for line in lines]


class Notes:
    """Measures the collector and the loop, and appends a line each second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        """Measure from the first turn of the loop on."""
        self._loop = loop
        self._file = file
        self._now = Second()
        self._began = 0.0
        self._due = self._note_at = loop.time()
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        seconds = time.perf_counter() - self._began
        self._now.passes += 1
        self._now.full_passes += info["generation"] == 2
        self._now.collector_seconds += seconds
        self._now.longest_pass_ms = max(self._now.longest_pass_ms, seconds * 1000)

    def tick(self) -> None:
        """Note how late this is, and come again."""
        late_ms = (self._loop.time() - self._due) * 1000
        self._now.longest_stall_ms = max(self._now.longest_stall_ms, late_ms)
        self._now.stalls += late_ms > STALL_MS
        if self._loop.time() >= self._note_at:
            if self._file.exists():
                with self._file.open("a") as file:
                    file.write(json.dumps(asdict(self._now)) + "\n")
            self._now, self._note_at = Second(), self._loop.time() + NOTE_SECONDS
        self._due = self._loop.time() + TICK_SECONDS
        self._loop.call_at(self._due, self.tick)


def main() -> None:
    """Run the command line of the service on a loop that is measured."""

    def run(program: Coroutine[object, object, int]) -> int:
        with asyncio.Runner(loop_factory=measured_loop) as runner:
            return runner.run(program)

    def measured_loop() -> uvloop.Loop:
        loop = uvloop.new_event_loop()
        loop.call_soon(Notes(loop, Path(os.environ[FILE])).tick)
        return loop

    setattr(uvloop, "run", run)  # noqa: B010  # the program has no other way to its loop, and types its own
    throughline.main.main()


if __name__ == "__main__":
    main()
