"""What hostile clients and providers do to a running service, and what a healthy user beside them notices.

`python -m benchmarks.hostile`. One attack after the other (`benchmarks.hostile_attacks`); for each the service's memory
before and at its peak, the longest stall of its event loop, and the slowest turn and health check of a healthy user.
Exits with 1 if an aim is missed: MEMORY_MB at the peak of the whole run, STALL_MS, or a healthy turn that failed.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.hostile_attacks import ATTACKS, Attack, Target
from benchmarks.hostile_provider import ANSWERS
from benchmarks.measured_service import FILE, read_notes
from benchmarks.processes import Running, ServiceOptions, free_port, run_server, run_service

MEMORY_MB = 600.0
STALL_MS = 250.0
SAMPLE_SECONDS = 0.05
PAUSE_SECONDS = 2.0
KEY = "a-key-for-the-benchmark-of-attacks"
TURN_TIMEOUT_SECONDS = "20"
"""The only bound that a provider's endless answer would meet if no other held; the default is 300."""


@dataclass(slots=True)
class Noticed:
    """What a healthy user saw, and the service's memory, during one attack."""

    turns: int = 0
    failures: int = 0
    slowest_turn: float = 0.0
    slowest_check: float = 0.0
    peak_bytes: int = 0


@dataclass(slots=True)
class Watch:
    """A healthy user, who talks and asks for the service's health, and a look at its memory now and then."""

    process: psutil.Process
    http: httpx.AsyncClient
    noticed: Noticed

    async def talk(self) -> None:
        """Send a message each second, for ever."""
        opened = await self.http.post("/v1/sessions", json={"agent": "fine"})
        path = f"/v1/sessions/{opened.raise_for_status().json()['id']}/messages"
        while True:
            began = time.monotonic()
            answer = await self.http.post(path, json={"content": "How are you?"})
            self.noticed.turns += 1
            self.noticed.failures += not answer.is_success
            self.noticed.slowest_turn = max(self.noticed.slowest_turn, time.monotonic() - began)
            await asyncio.sleep(1)

    async def check(self) -> None:
        """Ask for the health and look at the memory, for ever."""
        while True:
            began = time.monotonic()
            (await self.http.get("/health/live")).raise_for_status()
            self.noticed.slowest_check = max(self.noticed.slowest_check, time.monotonic() - began)
            self.noticed.peak_bytes = max(self.noticed.peak_bytes, self.process.memory_info().rss)
            await asyncio.sleep(SAMPLE_SECONDS)


@dataclass(frozen=True, slots=True)
class Row:
    """One attack: what it cost."""

    name: str
    seconds: float
    before_bytes: int
    stall_ms: float
    noticed: Noticed

    def render(self) -> str:
        """Return the row in Markdown."""
        seen = self.noticed
        return (
            f"| {self.name} | {self.seconds:.0f} | {self.before_bytes / 1e6:.0f} | {seen.peak_bytes / 1e6:.0f} | "
            f"{self.stall_ms:.0f} | {seen.turns} | {seen.failures} | "
            f"{seen.slowest_turn:.2f} | {seen.slowest_check:.2f} |"
        )


HEAD = """| attack | s | MB before | MB peak | stall ms | healthy turns | failed | slowest s | slowest check s |
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder, port = Path(name), free_port()
        command = [sys.executable, "-m", "benchmarks.hostile_provider", "--port", str(port)]
        provider = f"http://127.0.0.1:{port}"
        with (
            run_server(command, (provider, folder / "provider.log"), {}),
            run_service(_service(folder, f"{provider}/v1")) as service,
        ):
            chosen = {title: attack for title, attack in ATTACKS.items() if options.only in title}
            rows = await _attack_all(service, chosen, folder / "notes.jsonl")
    return _judge(rows)


def _service(folder: Path, provider: str) -> ServiceOptions:
    agents = folder / "agents"
    agents.mkdir()
    for model in ANSWERS:
        text = f"name: {model}\nmodel: openai:{model}\nbase_url: {provider}\nsystem_prompt: Be brief.\n"
        (agents / f"{model}.yaml").write_text(text)
    environment = {
        FILE: str(folder / "notes.jsonl"),
        "BOOTSTRAP_API_KEY": KEY,
        "TURN_TIMEOUT_SECONDS": TURN_TIMEOUT_SECONDS,
        "LOG_LEVEL": "ERROR",
    }
    return ServiceOptions(folder, agents_dir=agents, environment=environment, module="benchmarks.measured_service")


async def _attack_all(service: Running, attacks: dict[str, Attack], notes: Path) -> list[Row]:
    print(HEAD, flush=True)
    rows = []
    async with _watching(service) as watch:
        for name, attack in attacks.items():
            row = await _attack(name, attack, (watch, Target(service.url, KEY), notes))
            print(row.render(), flush=True)
            rows.append(row)
    return rows


async def _attack(name: str, attack: Attack, parts: tuple[Watch, Target, Path]) -> Row:
    watch, target, notes = parts
    await asyncio.sleep(PAUSE_SECONDS)
    watch.noticed = Noticed()
    read_notes(notes)
    before, began = watch.process.memory_info().rss, time.monotonic()
    await attack(target)
    seconds = time.monotonic() - began
    await asyncio.sleep(PAUSE_SECONDS)  # what it left behind, and a healthy turn after it
    return Row(name, seconds, before, max(note.longest_stall_ms for note in read_notes(notes)), watch.noticed)


@asynccontextmanager
async def _watching(service: Running) -> AsyncIterator[Watch]:
    headers = {"Authorization": f"Bearer {KEY}", "On-Behalf-Of": "healthy"}
    async with AsyncExitStack() as stack:
        client = httpx.AsyncClient(base_url=service.url, headers=headers, timeout=60)
        watch = Watch(psutil.Process(service.pid), await stack.enter_async_context(client), Noticed())
        tasks = [asyncio.create_task(watch.talk()), asyncio.create_task(watch.check())]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _judge(rows: Sequence[Row]) -> int:
    memory = max(row.noticed.peak_bytes for row in rows) / 1e6
    stall = max(row.stall_ms for row in rows)
    failures = sum(row.noticed.failures for row in rows)
    print(
        f"\nmemory at its peak {memory:.0f} MB (aim {MEMORY_MB:.0f}), longest stall {stall:.0f} ms (aim {STALL_MS:.0f})"
    )
    print(f"healthy turns {sum(row.noticed.turns for row in rows)}, failed {failures}")
    return 0 if memory <= MEMORY_MB and stall <= STALL_MS and not failures else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their names")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
