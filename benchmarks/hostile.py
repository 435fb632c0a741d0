"""What hostile clients and providers do to a running service, and what a healthy user beside them notices.

`python -m benchmarks.hostile`. One attack after the other (`benchmarks.hostile_attacks`); for each the service's memory
at its peak so far, the longest stall of its event loop, and the turns of a healthy user. Exits with 1 if an aim is
missed: MEMORY_MB, STALL_MS, or a healthy turn that failed.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.figures import peak_mb
from benchmarks.hostile_attacks import ATTACKS, Attack, Target
from benchmarks.hostile_provider import ANSWERS
from benchmarks.measured_service import FILE, read_stalls
from benchmarks.processes import run_server, run_service, write_agent

MEMORY_MB = 600.0
STALL_MS = 250.0
PAUSE_SECONDS = 2.0
KEY = "a-key-for-the-benchmark-of-attacks"
ENVIRONMENT = {"BOOTSTRAP_API_KEY": KEY, "LOG_LEVEL": "ERROR", "TURN_TIMEOUT_SECONDS": "20"}
"""The time limit is the only bound that a provider's endless answer would meet if no other held; its default is 300."""

HEAD = """\
| attack | s | MB peak | stall ms | healthy turns | failed | slowest s |
|:-------|--:|--------:|---------:|--------------:|-------:|----------:|"""


@dataclass(slots=True)
class Healthy:
    """A healthy user's turns during one attack, in seconds, and how many failed."""

    http: httpx.AsyncClient
    turns: list[float]
    failures: int = 0

    async def talk(self) -> None:
        """Send a message each second, for ever."""
        opened = await self.http.post("/v1/sessions", json={"agent": "fine"})
        path = f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages"
        while True:
            began = time.monotonic()
            answer = await self.http.post(path, json={"content": "How are you?"})
            self.turns.append(time.monotonic() - began)
            self.failures += not answer.is_success
            await asyncio.sleep(1)


@dataclass(frozen=True, slots=True)
class Row:
    """What one attack did."""

    peak_mb: float
    stall_ms: float
    turns: tuple[float, ...]
    failures: int


async def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, measure and print; return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their names")
    only: str = parser.parse_args(arguments).only
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-")))
        provider = stack.enter_context(run_server(["benchmarks.hostile_provider"], folder, {}, probe="/"))
        for model in ANSWERS:
            write_agent(folder, model, model=f"openai:{model}", base_url=f"{provider.url}/v1")
        notes = folder / "stalls"
        environment = {FILE: str(notes), **ENVIRONMENT}
        service = stack.enter_context(run_service(folder, environment, module="benchmarks.measured_service"))
        target = Target(service.url, KEY)
        print(HEAD, flush=True)
        async with _talking(target) as healthy:
            for name in (name for name in ATTACKS if only in name):
                seconds, stalls = await _attack(ATTACKS[name], target, healthy, notes)
                rows.append(Row(peak_mb(service.pid), max(stalls), tuple(healthy.turns), healthy.failures))
                print(f"| {name} | {seconds:.0f} | {_cells(rows[-1])} |", flush=True)
    return _judge(rows)


@asynccontextmanager
async def _talking(target: Target) -> AsyncGenerator[Healthy]:
    async with httpx.AsyncClient(base_url=target.url, headers=target.headers("healthy"), timeout=60) as http:
        healthy = Healthy(http, [])
        talk = asyncio.create_task(healthy.talk())
        try:
            yield healthy
        finally:
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)


async def _attack(attack: Attack, target: Target, healthy: Healthy, notes: Path) -> tuple[float, list[float]]:
    """Return how long an attack took, and the stalls meanwhile."""
    await asyncio.sleep(PAUSE_SECONDS)
    healthy.turns, healthy.failures = [], 0
    read_stalls(notes)
    began = time.monotonic()
    await attack(target)
    seconds = time.monotonic() - began
    await asyncio.sleep(PAUSE_SECONDS)  # what it left behind, and a healthy turn after it
    return seconds, read_stalls(notes)


def _cells(row: Row) -> str:
    seen = f"{len(row.turns)} | {row.failures} | {max(row.turns, default=0.0):.2f}"
    return f"{row.peak_mb:.0f} | {row.stall_ms:.0f} | {seen}"


def _judge(rows: Sequence[Row]) -> int:
    memory, stall = max(row.peak_mb for row in rows), max(row.stall_ms for row in rows)
    failures = sum(row.failures for row in rows)
    print(
        f"\nmemory at its peak {memory:.0f} MB (aim {MEMORY_MB:.0f}), longest stall {stall:.0f} ms (aim {STALL_MS:.0f})"
    )
    print(f"healthy turns {sum(len(row.turns) for row in rows)}, failed {failures}")
    return 0 if memory <= MEMORY_MB and stall <= STALL_MS and not failures else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
