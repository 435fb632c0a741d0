"""Whether the service tires: turns per second, memory and pauses in each minute of a steady load.

`python -m benchmarks.steady_load`. Senders talk in sessions of many turns without a pause, with a model behind HTTP
that answers at once. Each row is a minute: turns per second, CPU of a turn, memory of the service's process, the share
of the time that its garbage collector took and its longest pass, the longest stall of its event loop.

The speed of a shared machine changes from minute to minute, so the end compares with a baseline in the same minutes: a
second service is started on an empty database, and the two are loaded in turn for SLICE_SECONDS each. Exits with 1 if
an aim is missed: the old service has AIM_SHARE of the new one's turns, no pass takes longer than AIM_PASS_MS.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psutil

from benchmarks.measured_service import FILE, Second, read_notes
from benchmarks.processes import Running, ServiceOptions, run_double, run_service
from benchmarks.throughput_load import QUESTION
from benchmarks.throughput_services import MODEL, service_options

AIM_SHARE = 0.95
AIM_PASS_MS = 50.0
TURN_SECONDS = 120.0
SLICE_SECONDS = 4.0
LEAST_SLICES = 2


@dataclass(frozen=True, slots=True)
class Load:
    """What a service did in a time: answers, and the CPU its process used."""

    seconds: float
    turns: int
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Turns per second."""
        return self.turns / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of a turn in milliseconds."""
        return 1000 * self.cpu_seconds / max(self.turns, 1)


@dataclass(frozen=True, slots=True)
class Minute:
    """One row of the table; `seconds` are the notes of the service."""

    load: Load
    memory_bytes: int
    seconds: tuple[Second, ...]

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
            f"| {number} | {self.load.rate:.1f} | {self.load.cpu_ms:.2f} | "
            f"{self.memory_bytes / 1e6:.0f} | {100 * collector / self.load.seconds:.1f} | {full} | "
            f"{self.longest_pass_ms:.0f} | {stall:.0f} |"
        )


HEAD = """| minute | turns/s | CPU ms a turn | memory MB | collector % | full passes | pass ms | stall ms |
|---:|---:|---:|---:|---:|---:|---:|---:|"""


class Senders:
    """Clients that talk with one service in sessions of so many turns, while they are let."""

    def __init__(self, service: Running, double: Running, turns_per_session: int) -> None:
        """Send nothing yet."""
        self._url = service.url
        self._double_url = double.url.removesuffix("/v1")
        self._process = psutil.Process(service.pid)
        self._turns_per_session = turns_per_session
        self._may_send = asyncio.Event()
        self._all_answered = asyncio.Event()
        self._unanswered = 0
        self._turns = 0

    async def talk(self) -> None:
        """Talk until cancelled, whenever `load` lets it."""
        async with httpx.AsyncClient(base_url=self._url, timeout=TURN_SECONDS) as http:
            while True:
                opened = await http.post("/v1/sessions", json={"agent": "plain"})
                path = f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages"
                for number in range(self._turns_per_session):
                    await self._may_send.wait()
                    await self._send(http, path, QUESTION.format(number=number))

    async def load(self, seconds: float) -> Load:
        """Have the senders talk for so long, and return what was answered until the last of them had an answer."""
        async with httpx.AsyncClient() as http:
            await http.post(f"{self._double_url}/control/reset")  # what the double keeps would tire it
        began, turns, used = time.monotonic(), self._turns, self._cpu_seconds()
        self._may_send.set()
        await asyncio.sleep(seconds)
        self._may_send.clear()
        await self._all_answered.wait()
        return Load(time.monotonic() - began, self._turns - turns, self._cpu_seconds() - used)

    async def _send(self, http: httpx.AsyncClient, path: str, content: str) -> None:
        self._unanswered += 1
        self._all_answered.clear()
        sent = await http.post(path, json={"content": content})
        sent.raise_for_status()
        self._turns += 1
        self._unanswered -= 1
        if not self._unanswered:
            self._all_answered.set()

    def memory_bytes(self) -> int:
        """Return the resident memory of the service's process."""
        return int(self._process.memory_info().rss)

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def senders_of(service: Running, double: Running, options: argparse.Namespace) -> AsyncIterator[Senders]:
    """Have clients ready to talk with a service."""
    senders = Senders(service, double, options.turns)
    async with asyncio.TaskGroup() as group:
        talking = [group.create_task(senders.talk()) for _ in range(options.senders)]
        yield senders
        for task in talking:
            task.cancel()


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steady-load-")))
        double = stack.enter_context(run_double(folder))

        async def begin(name: str) -> Senders:
            service = stack.enter_context(run_service(_service(folder / name, double.url)))
            return await stack.enter_async_context(senders_of(service, double, options))

        old, notes = await begin("old"), _notes(folder / "old")
        print(HEAD, flush=True)
        minutes = [await _minute(number, old, notes, options) for number in range(1, options.minutes + 1)]
        share = await _compare(old, await begin("new"), options)
    return _judge(minutes, share)


def _notes(folder: Path) -> Path:
    return folder / "notes.jsonl"


def _service(folder: Path, double_url: str) -> ServiceOptions:
    folder.mkdir()
    options = replace(service_options(folder, "", double_url), module="benchmarks.measured_service")
    return replace(options, environment={FILE: str(_notes(folder))}, model=MODEL)


async def _minute(number: int, senders: Senders, notes: Path, options: argparse.Namespace) -> Minute:
    read_notes(notes)
    load = await senders.load(options.minute_seconds)
    minute = Minute(load, senders.memory_bytes(), tuple(read_notes(notes)))
    print(minute.row(number), flush=True)
    return minute


async def _compare(old: Senders, new: Senders, options: argparse.Namespace) -> float:
    """Load the two in turn and print it; return the old service's share of the new one's turns per second."""
    await new.load(options.minute_seconds)  # its first minute fills its caches, as the old one's did
    pairs = [(await old.load(SLICE_SECONDS), await new.load(SLICE_SECONDS)) for _ in range(options.slices)]
    aged, fresh = (_sum(loads) for loads in zip(*pairs, strict=True))
    print(f"\nin turn, {options.slices} times {SLICE_SECONDS:.0f} s each, as the machine is then:")
    print(f"old service {aged.rate:.1f} turns/s, {aged.cpu_ms:.2f} ms of CPU a turn")
    print(f"new service {fresh.rate:.1f} turns/s, {fresh.cpu_ms:.2f} ms of CPU a turn")
    quartiles = statistics.quantiles([one.rate / other.rate for one, other in pairs])
    spread = ", ".join(f"{share:.2f}" for share in quartiles)
    print(f"share: {aged.rate / fresh.rate:.2f} (aim {AIM_SHARE}); quartiles of the pairs: {spread}")
    return aged.rate / fresh.rate


def _sum(loads: Sequence[Load]) -> Load:
    return Load(
        sum(load.seconds for load in loads), sum(load.turns for load in loads), sum(load.cpu_seconds for load in loads)
    )


def _judge(minutes: Sequence[Minute], share: float) -> int:
    first, last = minutes[min(1, len(minutes) - 1)], minutes[-1]
    longest = max(minute.longest_pass_ms for minute in minutes[1:] or minutes)
    print(f"the last minute has {last.load.rate / first.load.rate:.2f} of the second's turns/s, on whatever machine")
    print(f"longest pass of the collector {longest:.0f} ms (aim {AIM_PASS_MS:.0f})")
    return 0 if share >= AIM_SHARE and longest <= AIM_PASS_MS else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady_load", description=__doc__)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--turns", type=int, default=40, help="turns of a session")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--minute-seconds", type=float, default=60.0, help="length of a minute, for a quick look")
    parser.add_argument("--slices", type=int, default=30, help="how often the two services take turns at the end")
    options = parser.parse_args(arguments)
    if options.slices < LEAST_SLICES:
        parser.error(f"--slices: at least {LEAST_SLICES} are needed to tell how far their shares lie apart.")
    return options


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
