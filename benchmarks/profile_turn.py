"""Which layer a turn's CPU goes to: our code, the database's packages, LangGraph, LangChain, the HTTP server.

`python -m benchmarks.profile_turn`. Clients who never pause press the service, with a model that answers at once inside
the service's process, or with `--model-kind http` over HTTP; meanwhile its main thread is sampled, every few
milliseconds of CPU time. A layer's share is the share of samples whose running function is its own, or is one of the
standard library that it called; CPU ms a turn is that share of what the process used, sampling included.

What it means, and what it does not: waiting is not sampled. Python looks at signals where a function begins, a call
returns or a loop goes on, so what compiled code does is charged to the Python function that called it: asyncpg's and
pydantic's compiled parts to their callers, which are nearly always their own. The event loop is compiled and called by
nobody: its work between two callbacks, reading and writing of sockets too, is charged to the callback that comes next,
so its own share is the least that is true. So is that of other threads, which this benchmark leaves idle. Sampling
takes about one percent, of all layers alike, unlike cProfile, which makes layers of many small functions look dear.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks import profiled_service
from benchmarks.processes import ROOT, Running, run_double, run_service
from benchmarks.profile_sampler import Sampled
from benchmarks.servers import run_postgres
from benchmarks.throughput_load import press
from benchmarks.throughput_services import KINDS, ModelKind, service_options

WRITE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What was sampled while so many turns used so much CPU."""

    sampled: tuple[Sampled, ...]
    turns: int
    cpu_seconds: float

    @property
    def samples(self) -> int:
        """How many samples were taken."""
        return sum(one.count for one in self.sampled)

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of a turn."""
        return 1000 * self.cpu_seconds / self.turns


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="profile-turn-") as name:
        folder = Path(name)
        async with run_postgres(folder) as url:
            with _run(folder, url, options.model_kind) as service:
                await press(service.url, options.clients, options.warm_up)
                profile = await _profiled(service, folder / "profile", options.clients, options.seconds)
    print(render(profile))
    if options.top:
        print(render_functions(profile, options.top))
    return 0


def render(profile: Profile) -> str:
    """Return each layer's share as a Markdown table, the largest first."""
    layers: Counter[str] = Counter()
    for one in profile.sampled:
        layers[one.layer] += one.count
    lines = [
        f"{profile.turns} turns, {profile.cpu_ms:.1f} ms of CPU each, {profile.samples} samples",
        "",
        "| layer | share | CPU ms a turn |",
        "|:------|------:|--------------:|",
    ]
    lines += [f"| {layer} | {_cells(profile, count)} |" for layer, count in layers.most_common()]
    return "\n".join(lines)


def render_functions(profile: Profile, number: int) -> str:
    """Return the functions with most own time as a Markdown table; one that works for two layers has two rows."""
    lines = [
        "",
        "| function | layer | share | CPU ms a turn |",
        "|:---------|:------|------:|--------------:|",
    ]
    most = sorted(profile.sampled, key=lambda one: -one.count)[:number]
    lines += [
        f"| `{one.name}` {shortened(one.file)}:{one.line} | {one.layer} | {_cells(profile, one.count)} |"
        for one in most
    ]
    return "\n".join(lines)


def shortened(file: str) -> str:
    """Return a source file as a reader looks for it: from its package on."""
    for folder in (*sorted(sys.path, key=len, reverse=True), str(ROOT)):
        if folder and file.startswith(f"{folder}/"):
            return file[len(folder) + 1 :]
    return file


def _cells(profile: Profile, count: int) -> str:
    share = count / profile.samples
    return f"{share:.1%} | {share * profile.cpu_ms:.2f}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_turn", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the service is sampled")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before that")
    parser.add_argument("--model-kind", choices=KINDS, default="in-process", help="where the instant model is")
    parser.add_argument("--top", type=int, default=0, help="print so many functions with most own time")
    return parser.parse_args(arguments)


@contextmanager
def _run(folder: Path, url: str, kind: ModelKind) -> Iterator[Running]:
    """Run the service under the sampler."""
    environment = {"DATABASE_URL": url, profiled_service.FILE: str(folder / "profile")}
    if kind == "in-process":
        environment[profiled_service.INSTANT_MODEL] = "1"
    with run_double(folder) if kind == "http" else nullcontext(Running("", 0)) as double:
        options = service_options(folder, url, double.url)
        options = replace(options, module=profiled_service.__name__, environment=environment)
        with run_service(options) as service:
            yield service


async def _profiled(service: Running, file: Path, clients: int, seconds: float) -> Profile:
    process = psutil.Process(service.pid)
    os.kill(service.pid, signal.SIGUSR1)
    before = process.cpu_times()
    measured = await press(service.url, clients, seconds)
    after = process.cpu_times()
    os.kill(service.pid, signal.SIGUSR2)
    sampled = await asyncio.to_thread(_read, file)
    return Profile(sampled, len(measured.turns), after.user + after.system - before.user - before.system)


def _read(file: Path) -> tuple[Sampled, ...]:
    """Return what the service writes within a moment."""
    deadline = time.monotonic() + WRITE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return tuple(Sampled(**one) for one in json.loads(file.read_text()))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
