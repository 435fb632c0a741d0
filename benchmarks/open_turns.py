"""What a turn adds to a slow model with many users at once, and what one user's queue costs the others.

`python -m benchmarks.open_turns`. Users think for a while, send a message and wait for its answer; the model, a double
over a real socket, takes a second. Then one user queues hundreds of messages on a service with few open turns while ten
others send one each second: their p99 beside their p99 alone. Exits with 1 if an aim is missed.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.processes import Running, ServiceOptions, run_double, run_service
from benchmarks.servers import run_postgres

MODEL = "double-128k-cl100k"
KEY = "a-key-for-the-benchmark-of-open-turns"
AGENT = "name: plain\nsystem_prompt: You are a helpful assistant.\n"
AIM_USERS, AIM_P50_MS, AIM_P99_MS = 100, 50.0, 300.0
TIMEOUT_SECONDS = 300.0
ASYNC = {"Prefer": "respond-async"}
WARM_SECONDS = 3.0
AT_ONCE = 20
OTHERS = 10
CROWD = "crowd"
"""The user with the long queue; the others are numbered."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What services run on: the database's address, the double and a folder of agents."""

    folder: Path
    database_url: str
    double: Running
    model_seconds: float


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds that turns took beyond the model's own time; peak memory of the service in megabytes.

    `cpu_ms` is the processor time of the service's process for a turn, which a busy machine does not change.
    """

    name: str
    milliseconds: tuple[float, ...]
    failed: int
    peak_mb: float
    cpu_ms: float

    def at(self, percent: int) -> float:
        """Return what this percentage of the turns did not exceed."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    slow = ("--answer-seconds", str(options.model_seconds))
    with tempfile.TemporaryDirectory(prefix="open-turns-") as name:
        folder = Path(name)
        (folder / "agents").mkdir()
        (folder / "agents" / "plain.yaml").write_text(AGENT)
        async with run_postgres(folder) as url:
            with run_double(folder, "openai", slow) as double:
                ground = Ground(folder, url, double, options.model_seconds)
                counts = [int(number) for number in options.users.split(",") if number]
                open_turns = [await _with_users(ground, number, options.seconds) for number in counts]
                print(render("users", open_turns), flush=True)
                fair = [await _beside(ground, options, queued) for queued in (0, options.queued)]
    print(render(f"{OTHERS} users, one message a second each, {options.slots} open turns", fair))
    return 0 if all(_is_quick(measured) for measured in open_turns) else 1


def render(head: str, measured: Sequence[Added]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        f"| {head} | turns | failed | added p50 ms | p99 ms | CPU ms/turn | peak RSS MB |",
        "|---|------:|-------:|-------------:|-------:|------------:|------------:|",
    ]
    for one in measured:
        turns = f"{len(one.milliseconds)} | {one.failed}"
        lines.append(
            f"| {one.name} | {turns} | {one.at(50):.0f} | {one.at(99):.0f} | {one.cpu_ms:.0f} | {one.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def _is_quick(measured: Added) -> bool:
    if measured.name != str(AIM_USERS):
        return measured.failed == 0
    return measured.failed == 0 and measured.at(50) <= AIM_P50_MS and measured.at(99) <= AIM_P99_MS


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_turns", description=__doc__)
    parser.add_argument("--users", default="10,100,300", help="none where empty")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long each number of users is measured")
    parser.add_argument("--model-seconds", type=float, default=1.0)
    parser.add_argument("--queued", type=int, default=500, help="messages of the user with the long queue")
    parser.add_argument("--slots", type=int, default=16, help="open turns of the service meanwhile")
    parser.add_argument("--rounds", type=int, default=10, help="messages of each of the others")
    return parser.parse_args(arguments)


async def _with_users(ground: Ground, number: int, seconds: float) -> Added:
    chance = random.Random(1)

    async def talk(turns: "_Turns", user: int) -> None:
        session = await turns.open_session(f"user-{user}")
        until = time.monotonic() + seconds
        await asyncio.sleep(chance.uniform(0, 4))
        while time.monotonic() < until:
            await turns.take(f"user-{user}", session)
            await asyncio.sleep(chance.uniform(2, 6))

    async with _service(ground, {}) as turns:
        await asyncio.gather(*(talk(turns, user) for user in range(number)))
        return turns.measured(str(number))


async def _beside(ground: Ground, options: argparse.Namespace, queued: int) -> Added:
    async with _service(ground, {"WORKER_CONCURRENCY": str(options.slots)}) as turns:
        theirs = [[await turns.open_session(f"user-{user}") for _ in range(options.rounds)] for user in range(OTHERS)]
        crowd = [await turns.open_session(CROWD) for _ in range(queued)]
        for start in range(0, queued, AT_ONCE):
            await asyncio.gather(*(turns.queue(CROWD, session) for session in crowd[start : start + AT_ONCE]))
        await asyncio.gather(*(_once_a_second(turns, user, sessions) for user, sessions in enumerate(theirs)))
        return turns.measured(f"beside {queued} queued of another user" if queued else "alone")


async def _once_a_second(turns: "_Turns", user: int, sessions: Sequence[str]) -> None:
    """Send a message to each of the sessions, one a second, whether or not the earlier ones are answered."""
    await asyncio.sleep(user / OTHERS)
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, session in enumerate(sessions):
            await asyncio.sleep(max(0.0, began + number - time.monotonic()))
            tasks.create_task(turns.take(f"user-{user}", session))


class _Turns:
    """Sends messages to one service and keeps what their turns took."""

    def __init__(self, http: httpx.AsyncClient, service: Running, model_seconds: float) -> None:
        self._http, self._service, self._model_seconds = http, service, model_seconds
        self._added: list[float] = []
        self._failed = 0
        self._began_cpu = _cpu_seconds(service.pid)

    async def open_session(self, user: str) -> str:
        created = await self._http.post("/v1/sessions", json={"agent": "plain"}, headers=_as(user))
        return f"/v1/sessions/{created.raise_for_status().json()['id']}/messages"

    async def take(self, user: str, session: str) -> None:
        """Send a message and wait for its answer."""
        began = time.monotonic()
        answer = await self._http.post(session, json={"content": "What now?"}, headers=_as(user))
        self._failed += not answer.is_success
        self._added.append(1000 * (time.monotonic() - began - self._model_seconds))

    async def queue(self, user: str, session: str) -> None:
        """Send a message and leave its answer to come."""
        accepted = await self._http.post(session, json={"content": "And this?"}, headers=_as(user) | ASYNC)
        accepted.raise_for_status()

    def measured(self, name: str) -> Added:
        """Return all that was kept."""
        cpu_ms = 1000 * (_cpu_seconds(self._service.pid) - self._began_cpu) / len(self._added)
        return Added(name, tuple(self._added), self._failed, _peak_mb(self._service.pid), cpu_ms)


@asynccontextmanager
async def _service(ground: Ground, environment: Mapping[str, str]) -> AsyncGenerator[_Turns]:
    options = ServiceOptions(
        folder=ground.folder,
        double_url=ground.double.url,
        model=MODEL,
        agents_dir=ground.folder / "agents",
        environment={"DATABASE_URL": ground.database_url, "BOOTSTRAP_API_KEY": KEY, **environment},
    )
    with run_service(options) as service:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        headers = {"Authorization": f"Bearer {KEY}"}
        timeout = httpx.Timeout(TIMEOUT_SECONDS)
        async with httpx.AsyncClient(base_url=service.url, timeout=timeout, limits=limits, headers=headers) as http:
            turns = _Turns(http, service, ground.model_seconds)
            await _warm(turns)
            yield turns


async def _warm(turns: _Turns) -> None:
    """Have a few turns taken that are not measured: the first one loads what all others use."""
    for _ in range(5):
        await turns.queue("warm", await turns.open_session("warm"))
    await asyncio.sleep(WARM_SECONDS)


def _as(user: str) -> dict[str, str]:
    return {"On-Behalf-Of": user}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return kilobytes / 1024


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
