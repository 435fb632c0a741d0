"""Whether the service tires: turns per second, memory and pauses in each minute of a steady load.

`python -m benchmarks.steady_load`. Senders talk in sessions of many turns without a pause, with a model behind HTTP
that answers at once. Each row is a minute: turns per second, CPU of a turn, memory of the service's process, the share
of the time that its garbage collector took and its longest pass, the longest stall of its event loop. Exits with 1 if
an aim is missed: the last minute has AIM_SHARE of the turns of the second, no pass takes longer than AIM_PASS_MS.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psutil

from benchmarks.measured_service import FILE, Second, read_notes
from benchmarks.processes import ServiceOptions, run_double, run_service
from benchmarks.throughput_load import QUESTION
from benchmarks.throughput_services import MODEL, service_options

AIM_SHARE = 0.95
AIM_PASS_MS = 50.0
TURN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Minute:
    """One row of the table; `seconds` are the notes of the service."""

    length: float
    turns: int
    cpu_seconds: float
    memory_bytes: int
    seconds: tuple[Second, ...]

    @property
    def rate(self) -> float:
        """Turns per second."""
        return self.turns / self.length

    @property
    def longest_pass_ms(self) -> float:
        """The collector's longest pass."""
        return max(second.longest_pass_ms for second in self.seconds)

    def row(self, number: int) -> str:
        """Return the row in Markdown."""
        collector = sum(second.collector_seconds for second in self.seconds)
        full = sum(second.full_passes for second in self.seconds)
        stall = max(second.longest_stall_ms for second in self.seconds)
        return (
            f"| {number} | {self.rate:.1f} | {1000 * self.cpu_seconds / max(self.turns, 1):.2f} | "
            f"{self.memory_bytes / 1e6:.0f} | {100 * collector / self.length:.1f} | {full} | "
            f"{self.longest_pass_ms:.0f} | {stall:.0f} |"
        )


HEAD = """| minute | turns/s | CPU ms a turn | memory MB | collector % | full passes | pass ms | stall ms |
|---:|---:|---:|---:|---:|---:|---:|---:|"""


class Senders:
    """Clients that talk for ever in sessions of so many turns; `turns` counts the answers."""

    def __init__(self, url: str, turns_per_session: int) -> None:
        """Send nothing yet."""
        self._url = url
        self._turns_per_session = turns_per_session
        self.turns = 0

    async def talk(self) -> None:
        """Talk until cancelled."""
        async with httpx.AsyncClient(base_url=self._url, timeout=TURN_SECONDS) as http:
            while True:
                opened = await http.post("/v1/sessions", json={"agent": "plain"})
                path = f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages"
                for number in range(self._turns_per_session):
                    sent = await http.post(path, json={"content": QUESTION.format(number=number)})
                    sent.raise_for_status()
                    self.turns += 1


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="steady-load-") as name:
        folder = Path(name)
        notes = folder / "notes.jsonl"
        with run_double(folder) as double, run_service(_service(folder, double.url, notes)) as service:
            senders = Senders(service.url, options.turns)
            talking = [asyncio.create_task(senders.talk()) for _ in range(options.senders)]
            print(HEAD, flush=True)
            minutes = [
                await _minute(number, psutil.Process(service.pid), senders, notes, options.minute_seconds)
                for number in range(1, options.minutes + 1)
            ]
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
    return _judge(minutes)


def _service(folder: Path, double_url: str, notes: Path) -> ServiceOptions:
    options = replace(service_options(folder, "", double_url), module="benchmarks.measured_service")
    return replace(options, environment={FILE: str(notes)}, model=MODEL)


async def _minute(number: int, process: psutil.Process, senders: Senders, notes: Path, seconds: float) -> Minute:
    read_notes(notes)
    began, turns, used = time.monotonic(), senders.turns, sum(process.cpu_times()[:2])
    await asyncio.sleep(seconds)
    minute = Minute(
        length=time.monotonic() - began,
        turns=senders.turns - turns,
        cpu_seconds=sum(process.cpu_times()[:2]) - used,
        memory_bytes=process.memory_info().rss,
        seconds=tuple(read_notes(notes)),
    )
    print(minute.row(number), flush=True)
    return minute


def _judge(minutes: Sequence[Minute]) -> int:
    first, last = minutes[min(1, len(minutes) - 1)], minutes[-1]
    share, longest = last.rate / first.rate, max(minute.longest_pass_ms for minute in minutes[1:] or minutes)
    print(f"\nthe last minute has {share:.2f} of the second's turns/s (aim {AIM_SHARE})")
    print(f"longest pass of the collector {longest:.0f} ms (aim {AIM_PASS_MS:.0f})")
    return 0 if share >= AIM_SHARE and longest <= AIM_PASS_MS else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady_load", description=__doc__)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--turns", type=int, default=40, help="turns of a session")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--minute-seconds", type=float, default=60.0, help="length of a minute, for a quick look")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
