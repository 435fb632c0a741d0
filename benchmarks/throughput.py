"""Turns per second over HTTP, beside a bare turn without our features: same run, same database server, same model.

`python -m benchmarks.throughput`. Each client talks in sessions of a few turns, one after the other; the two services
are measured in turns, so that whatever slows the machine slows both. First the model answers at once and the clients
never pause; then it takes a second, and users think between an answer and their next message: what the turn adds to
that second is the service's. Exits with 1 if an aim is missed.
"""

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.processes import Running, ServiceOptions, free_port, run_double, run_server, run_service
from benchmarks.servers import dsn_of, run_postgres

MODEL = "double-128k-cl100k"
AIM = 0.8
AIM_P50_MS, AIM_P99_MS = 30.0, 200.0
AGENT = "name: plain\nsystem_prompt: You are a helpful assistant.\n"
"""No tools: the bare turn offers none either."""
TURNS_PER_SESSION = 10
TURN_SECONDS = 120.0
QUESTION = "How do I keep a conversation going for ever without losing what was said at its beginning? Answer {number}."


@dataclass(frozen=True, slots=True)
class Load:
    """How hard to press: clients at once, seconds of one measurement, how often each service is measured."""

    clients: tuple[int, ...]
    seconds: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Users:
    """People at once, the seconds the model takes, and the mean of their pauses, which are evenly spread around it."""

    number: int
    model_seconds: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Turns in so many seconds, and what each took."""

    seconds: float
    turns: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Turns per second."""
        return len(self.turns) / self.seconds

    def milliseconds(self, percent: int) -> float:
        """Return what this percentage of the turns was answered in."""
        ordered = sorted(self.turns)
        return 1000 * ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Measures of both services at one number of clients, one for each round."""

    clients: int
    ours: tuple[Measured, ...]
    bare: tuple[Measured, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios of turns per second."""
        return statistics.median(ours.rate / bare.rate for ours, bare in zip(self.ours, self.bare, strict=True))


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    load = Load(tuple(int(item) for item in options.clients.split(",")), options.seconds, options.rounds)
    users = Users(options.users, options.model_seconds, options.pause)
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        async with run_postgres(folder) as url:
            with run_double(folder) as double, _both(folder, url, double) as services:
                rates = [await _measure(services, load, clients) for clients in load.clients]
            print(render(rates))
            slow = ("--answer-seconds", str(users.model_seconds))
            with run_double(folder, "openai", slow) as double, _both(folder, url, double) as services:
                added = [await _added(url, users, options.users_seconds) for url in services]
    print(render_added(users, added))
    is_quick = added[0].milliseconds(50) <= AIM_P50_MS and added[0].milliseconds(99) <= AIM_P99_MS
    return 0 if is_quick and all(rate.ratio >= AIM for rate in rates) else 1


def render(rates: Sequence[Rates]) -> str:
    """Return the figures as a Markdown table: medians over the rounds, p50 and p99 of a turn in milliseconds."""
    lines = [
        "| clients | service, turns/s | p50 ms | p99 ms | bare, turns/s | p50 ms | p99 ms | ratio |",
        "|--------:|-----------------:|-------:|-------:|--------------:|-------:|-------:|------:|",
    ]
    for rate in rates:
        cells = " | ".join(_figures(measured) for measured in (rate.ours, rate.bare))
        lines.append(f"| {rate.clients} | {cells} | {rate.ratio:.2f} |")
    return "\n".join(lines)


def render_added(users: Users, added: Sequence[Measured]) -> str:
    """Return what both services add to the model's time, as a Markdown table."""
    asked = f"{users.number} users who think for {users.pause_seconds:g} s"
    lines = [
        f"\n{asked}: what a turn takes beyond the model's {users.model_seconds:g} s",
        "",
        "| service | turns/s | p50 ms | p99 ms |",
        "|:--------|--------:|-------:|-------:|",
    ]
    lines += [
        f"| {name} | {one.rate:.1f} | {one.milliseconds(50):.0f} | {one.milliseconds(99):.0f} |"
        for name, one in zip(("ours", "bare"), added, strict=True)
    ]
    return "\n".join(lines)


def _figures(rounds: Sequence[Measured]) -> str:
    rate = statistics.median(one.rate for one in rounds)
    half, nearly_all = (statistics.median(one.milliseconds(percent) for one in rounds) for percent in (50, 99))
    return f"{rate:.1f} | {half:.0f} | {nearly_all:.0f}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each service")
    parser.add_argument("--users", type=int, default=100, help="people at once, for what a turn adds to the model")
    parser.add_argument("--model-seconds", type=float, default=1.0, help="how long the model takes for them")
    parser.add_argument("--pause", type=float, default=9.0, help="seconds they think, on average")
    parser.add_argument("--users-seconds", type=float, default=60.0, help="how long they are measured")
    return parser.parse_args(arguments)


@contextmanager
def _both(folder: Path, database_url: str, double: Running) -> Iterator[tuple[str, str]]:
    """Run the service and the bare one; yield their addresses."""
    options = ServiceOptions(
        folder=folder,
        double_url=double.url,
        model=MODEL,
        agents_dir=_agents(folder),
        environment={"DATABASE_URL": database_url},
    )
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.bare_service", "--port", str(port), "--dsn", dsn_of(database_url)]
    command += ["--model", MODEL, "--model-url", double.url]
    bare = f"http://127.0.0.1:{port}"
    with run_service(options) as service, run_server(command, (f"{bare}/health/ready", folder / "bare.log"), {}):
        yield service.url, bare


def _agents(folder: Path) -> Path:
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "plain.yaml").write_text(AGENT)
    return agents


async def _measure(services: tuple[str, str], load: Load, clients: int) -> Rates:
    for url in services:
        await _press(url, clients, min(load.seconds, 2.0))
    ours: list[Measured] = []
    bare: list[Measured] = []
    for number in range(load.rounds):
        pair = ((ours, services[0]), (bare, services[1]))
        for results, url in pair if number % 2 == 0 else reversed(pair):
            results.append(await _press(url, clients, load.seconds))
    return Rates(clients, tuple(ours), tuple(bare))


async def _press(url: str, clients: int, seconds: float) -> Measured:
    """Return the turns that so many clients got who never pause."""
    return await _together(url, clients, seconds, itertools.repeat(0.0))


async def _added(url: str, users: Users, seconds: float) -> Measured:
    """Return the turns of people who pause, the model's time taken off."""
    chance = random.Random(1)
    pauses = (chance.uniform(0, 2 * users.pause_seconds) for _ in itertools.count())
    measured = await _together(url, users.number, seconds, pauses)
    return Measured(measured.seconds, tuple(turn - users.model_seconds for turn in measured.turns))


async def _together(url: str, clients: int, seconds: float, pauses: Iterator[float]) -> Measured:
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=TURN_SECONDS, limits=limits) as http:
        began = time.monotonic()
        talks = await asyncio.gather(*(_talk(http, began + seconds, pauses) for _ in range(clients)))
        return Measured(time.monotonic() - began, tuple(turn for talk in talks for turn in talk))


async def _talk(http: httpx.AsyncClient, until: float, pauses: Iterator[float]) -> list[float]:
    turns: list[float] = []
    while time.monotonic() < until:
        created = (await http.post("/v1/sessions", json={"agent": "plain"})).raise_for_status()
        path = f"/v1/sessions/{created.json()['id']}/messages"
        for number in range(TURNS_PER_SESSION):
            await asyncio.sleep(next(pauses))
            if turns and time.monotonic() >= until:
                break
            began = time.monotonic()
            response = await http.post(path, json={"content": QUESTION.format(number=number)})
            response.raise_for_status()
            turns.append(time.monotonic() - began)
    return turns


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
