"""Turns per second over HTTP, beside a bare turn without our features: same run, same database server, same model.

`python -m benchmarks.throughput`. Each client talks in sessions of a few turns, one after the other; the two services
are measured in turns, so that whatever slows the machine slows both.
"""

import argparse
import asyncio
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
class Rates:
    """Turns per second of both services at one number of clients, one figure for each round."""

    clients: int
    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(ours / bare for ours, bare in zip(self.ours, self.bare, strict=True))


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if a ratio is below the aim."""
    options = _parse(arguments)
    load = Load(tuple(int(item) for item in options.clients.split(",")), options.seconds, options.rounds)
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        async with run_postgres(folder) as url:
            with run_double(folder) as double, _both(folder, url, double) as services:
                rates = [await _measure(services, load, clients) for clients in load.clients]
    print(render(rates))
    return 0 if all(rate.ratio >= AIM for rate in rates) else 1


def render(rates: Sequence[Rates]) -> str:
    """Return the figures as a Markdown table: medians over the rounds."""
    lines = [
        "| clients | service, turns/s | bare, turns/s | ratio |",
        "|--------:|-----------------:|--------------:|------:|",
    ]
    for rate in rates:
        ours, bare = statistics.median(rate.ours), statistics.median(rate.bare)
        lines.append(f"| {rate.clients:7} | {ours:16.1f} | {bare:13.1f} | {rate.ratio:5.2f} |")
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each service")
    return parser.parse_args(arguments)


@contextmanager
def _both(folder: Path, database_url: str, double: Running) -> Iterator[tuple[str, str]]:
    """Run the service and the bare one; yield their addresses."""
    options = ServiceOptions(
        folder=folder,
        double_url=double.url,
        model=MODEL,
        agents_dir=_agents(folder),
        environment={"DATABASE_URL": database_url, "WORKER_CONCURRENCY": "64"},
    )
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.bare_service", "--port", str(port), "--dsn", dsn_of(database_url)]
    command += ["--model", MODEL, "--model-url", double.url]
    bare = f"http://127.0.0.1:{port}"
    with run_service(options) as service, run_server(command, (f"{bare}/health/ready", folder / "bare.log"), {}):
        yield service.url, bare


def _agents(folder: Path) -> Path:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "plain.yaml").write_text(AGENT)
    return agents


async def _measure(services: tuple[str, str], load: Load, clients: int) -> Rates:
    for url in services:
        await _rate(url, clients, min(load.seconds, 2.0))
    ours: list[float] = []
    bare: list[float] = []
    for number in range(load.rounds):
        pair = ((ours, services[0]), (bare, services[1]))
        for results, url in pair if number % 2 == 0 else reversed(pair):
            results.append(await _rate(url, clients, load.seconds))
    return Rates(clients, tuple(ours), tuple(bare))


async def _rate(url: str, clients: int, seconds: float) -> float:
    """Return the turns per second that so many clients got."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=TURN_SECONDS, limits=limits) as http:
        began = time.monotonic()
        counts = await asyncio.gather(*(_talk(http, began + seconds) for _ in range(clients)))
        return sum(counts) / (time.monotonic() - began)


async def _talk(http: httpx.AsyncClient, until: float) -> int:
    turns = 0
    while time.monotonic() < until:
        created = (await http.post("/v1/sessions", json={"agent": "plain"})).raise_for_status()
        path = f"/v1/sessions/{created.json()['id']}/messages"
        for number in range(TURNS_PER_SESSION):
            response = await http.post(path, json={"content": QUESTION.format(number=number)})
            response.raise_for_status()
            turns += 1
            if time.monotonic() >= until:
                break
    return turns


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
