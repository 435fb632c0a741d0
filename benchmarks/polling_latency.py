"""What polling alone (DATABASE_LISTEN=false) adds to a turn, beside notifications by LISTEN and NOTIFY in the same run.

`python -m benchmarks.polling_latency`. Two servers have two processes each: one that takes no turns and one that
does. Their model answers at once. A message is posted to the first, run by the second, and its stream is read through
the first; or it is posted to the second, which runs it itself. Clients pause between their turns, as people do. Fails
if a stream has no answer.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.figures import aligned, percentile
from benchmarks.processes import MODEL, run_postgres, run_server, write_agent

AGENT = "plain"
TIMEOUT_SECONDS = 60.0
MODULE = "benchmarks.instant_model"
HEADINGS = ("changes found by", "turn is run by", "turns", "first word p50 ms", "p99 ms", "whole p50 ms", "p99 ms")
FIRST, LAST = "event: message.delta", "event: run.completed"


class NoAnswer(Exception):
    """A stream ended without an answer."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a client to an answer: how processes learn of changes, who runs the turn, and who is asked."""

    found_by: str
    run_by: str
    url: str
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)

    async def take_turn(self, http: httpx.AsyncClient, number: int) -> None:
        """Post one message to a new session and read its stream. Raises NoAnswer."""
        created = (await http.post(f"{self.url}/v1/sessions", json={"agent": AGENT})).raise_for_status().json()
        address, body = f"{self.url}/v1/sessions/{created['id']}/messages", {"content": f"Question {number}?"}
        began, first = time.monotonic(), 0.0
        async with http.stream("POST", address, json=body, headers={"Accept": "text/event-stream"}) as answer:
            async for line in answer.aiter_lines():
                if line == FIRST and not first:
                    first = time.monotonic() - began
                elif line == LAST and first:
                    self.first.append(first)
                    self.whole.append(time.monotonic() - began)
                    return
        raise NoAnswer(f"turn {number} of {self.found_by}, run by {self.run_by}")

    def row(self) -> list[str]:
        """Return the cells of the table."""
        figures = [percentile(times, percent) for times in (self.first, self.whole) for percent in (50, 99)]
        return [self.found_by, self.run_by, str(len(self.whole)), *(f"{1000 * one:.0f}" for one in figures)]


@asynccontextmanager
async def _running_ways(folder: Path) -> AsyncGenerator[list[Way]]:
    """Start the servers and all processes; yield the ways to an answer."""
    async with run_postgres(folder / "true") as listening, run_postgres(folder / "false") as polling:
        with ExitStack() as started:
            yield [
                *_start(started, folder / "true", "notifications", {"DATABASE_URL": listening}),
                *_start(started, folder / "false", "polling alone", {"DATABASE_URL": polling}),
            ]


def _start(started: ExitStack, folder: Path, name: str, database: Mapping[str, str]) -> list[Way]:
    environment = {
        **database,
        "DATABASE_LISTEN": folder.name,
        "DEFAULT_LLM": f"openai:{MODEL}",
        "OPENAI_API_KEY": "benchmark",
        "LOG_LEVEL": "WARNING",
    }
    urls: list[str] = []
    for arguments in (["serve"], ["serve", "--no-worker"]):
        own = folder / f"process-{len(urls)}"
        write_agent(own, AGENT)
        settings = {**environment, "AGENTS_DIR": str(own / "agents")}
        running = started.enter_context(run_server([MODULE, *arguments], own, settings, probe="/health/ready"))
        urls.append(running.url)
    return [Way(name, "another process", urls[1]), Way(name, "the process itself", urls[0])]


async def _take_turns(ways: Sequence[Way], turns: int, options: argparse.Namespace) -> None:
    """Have the clients take so many turns in each way, all ways side by side, with pauses between the turns of each."""
    numbers = iter([(way, number) for number in range(turns) for way in ways])
    limits = httpx.Limits(max_connections=options.clients)

    async def work() -> None:
        for way, number in numbers:
            await asyncio.sleep(random.uniform(0, 2) * options.pause_seconds)
            await way.take_turn(http, number)

    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits) as http, asyncio.TaskGroup() as tasks:
        for _ in range(options.clients):
            tasks.create_task(work())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.polling_latency", description=__doc__)
    parser.add_argument("--turns", type=int, default=300, help="how many in each way")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause-seconds", type=float, default=0.3, help="average pause of a client between two turns")
    return parser.parse_args(arguments)


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print. Raises NoAnswer, in a group of errors."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="polling-") as name:
        async with _running_ways(Path(name)) as ways:
            await _take_turns(ways, 5, options)
            measured = [Way(way.found_by, way.run_by, way.url) for way in ways]
            await _take_turns(measured, options.turns, options)
    print(f"{options.clients} clients; load {os.getloadavg()[0]:.1f}")
    print(aligned([HEADINGS, *(way.row() for way in measured)]))


if __name__ == "__main__":
    asyncio.run(main())
