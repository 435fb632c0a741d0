"""What a turn adds to a slow model with many users at once, and what one user's queue costs the others.

`python -m benchmarks.open_turns`. Users think for a while, send a message and wait for its answer; the model, a double
over a real socket, takes a second. Then one user queues hundreds of messages on a service with few open turns while ten
others send one each second: their p99 beside their p99 alone. Exits with 1 if an aim is missed.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.figures import aligned, cpu_seconds, peak_mb, percentile
from benchmarks.processes import run_double, run_postgres, run_service, write_agent

KEY = "a-key-for-the-benchmark-of-open-turns"
AGENT = "plain"
MODEL_SECONDS = 1.0
AIM_USERS, AIM_P50_MS, AIM_P99_MS = 100, 30.0, 200.0
THINK_SECONDS = (2.0, 6.0)
TIMEOUT_SECONDS = 300.0
WARM_SECONDS = 3.0
AT_ONCE = 20
OTHERS = 10
CROWD = "crowd"
"""The user with the long queue; the others are numbered."""


@dataclass(slots=True)
class Turns:
    """Sends messages to one service and keeps what turns took beyond the model's own time."""

    http: httpx.AsyncClient
    added: list[float] = field(default_factory=list)
    failed: int = 0

    async def open_session(self, user: str) -> str:
        """Return the path of a new session's messages."""
        created = await self.http.post("/v1/sessions", json={"agent": AGENT}, headers={"On-Behalf-Of": user})
        return f"/v1/sessions/{created.raise_for_status().json()['id']}/messages"

    async def take(self, user: str, session: str) -> None:
        """Send a message and wait for its answer."""
        began = time.monotonic()
        answer = await self.http.post(session, json={"content": "What now?"}, headers={"On-Behalf-Of": user})
        self.failed += not answer.is_success
        self.added.append(1000 * (time.monotonic() - began - MODEL_SECONDS))

    async def queue(self, user: str, session: str) -> None:
        """Send a message and leave its answer to come."""
        headers = {"On-Behalf-Of": user, "Prefer": "respond-async"}
        (await self.http.post(session, json={"content": "And this?"}, headers=headers)).raise_for_status()


@dataclass(frozen=True, slots=True)
class Ground:
    """What services run on: the folder with their agents and the addresses of the database and the double."""

    folder: Path
    database_url: str
    double_url: str

    @asynccontextmanager
    async def service(self, row: list[str], **environment: str) -> AsyncGenerator[Turns]:
        """Run a service that has taken a few turns already; adds what others took to the row at the end."""
        environment |= {"DATABASE_URL": self.database_url, "BOOTSTRAP_API_KEY": KEY}
        headers, limits = {"Authorization": f"Bearer {KEY}"}, httpx.Limits(max_connections=None)
        with run_service(self.folder, environment, double_url=self.double_url) as running:
            client = httpx.AsyncClient(base_url=running.url, timeout=TIMEOUT_SECONDS, limits=limits, headers=headers)
            async with client as http:
                turns = Turns(http)
                for _ in range(5):
                    await turns.queue("warm", await turns.open_session("warm"))
                await asyncio.sleep(WARM_SECONDS)
                began = cpu_seconds(running.pid)
                yield turns
                figures = (
                    *(percentile(turns.added, percent) for percent in (50, 99)),
                    1000 * (cpu_seconds(running.pid) - began) / len(turns.added),
                    peak_mb(running.pid),
                )
                row += [str(len(turns.added)), str(turns.failed), *(f"{figure:.0f}" for figure in figures)]


FIGURES = ("turns", "failed", "added p50 ms", "p99 ms", "CPU ms/turn", "peak RSS MB")


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="open-turns-") as name:
        folder = Path(name)
        write_agent(folder, AGENT)
        async with run_postgres(folder) as url:
            with run_double(folder, answer_seconds=MODEL_SECONDS) as double:
                ground = Ground(folder, url, double.url)
                counts = [int(number) for number in options.users.split(",") if number]
                many = [await _with_users(ground, number, options.seconds) for number in counts]
                print(aligned([["users", *FIGURES], *(row for row, _ in many)]), flush=True)
                fair = [await _beside(ground, options, queued) for queued in (0, options.queued)]
    head = f"{OTHERS} users, one message a second each, {options.slots} open turns"
    print(aligned([[head, *FIGURES], *fair]))
    return 0 if all(is_quick for _, is_quick in many) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.open_turns", description=__doc__)
    parser.add_argument("--users", default="10,100,300", help="none where empty")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long each number of users is measured")
    parser.add_argument("--queued", type=int, default=500, help="messages of the user with the long queue")
    parser.add_argument("--slots", type=int, default=16, help="open turns of the service meanwhile")
    parser.add_argument("--rounds", type=int, default=10, help="messages of each of the others")
    return parser.parse_args(arguments)


async def _with_users(ground: Ground, number: int, seconds: float) -> tuple[list[str], bool]:
    """Return the row of so many users, and whether it reaches the aims."""
    chance = random.Random(1)

    async def talk(user: str) -> None:
        session = await turns.open_session(user)
        until = time.monotonic() + seconds
        await asyncio.sleep(chance.uniform(0, THINK_SECONDS[1]))
        while time.monotonic() < until:
            await turns.take(user, session)
            await asyncio.sleep(chance.uniform(*THINK_SECONDS))

    row = [str(number)]
    async with ground.service(row) as turns:
        await asyncio.gather(*(talk(f"user-{user}") for user in range(number)))
    is_quick = percentile(turns.added, 50) <= AIM_P50_MS and percentile(turns.added, 99) <= AIM_P99_MS
    return row, not turns.failed and (is_quick or number != AIM_USERS)


async def _beside(ground: Ground, options: argparse.Namespace, queued: int) -> list[str]:
    """Return the row of a few users beside one with so many queued messages."""
    row = [f"beside {queued} queued of another user" if queued else "alone"]
    async with ground.service(row, WORKER_CONCURRENCY=str(options.slots)) as turns:
        theirs = [[await turns.open_session(f"user-{user}") for _ in range(options.rounds)] for user in range(OTHERS)]
        crowd = [await turns.open_session(CROWD) for _ in range(queued)]
        for start in range(0, queued, AT_ONCE):
            await asyncio.gather(*(turns.queue(CROWD, session) for session in crowd[start : start + AT_ONCE]))
        await asyncio.gather(*(_once_a_second(turns, user, sessions) for user, sessions in enumerate(theirs)))
    return row


async def _once_a_second(turns: Turns, user: int, sessions: Sequence[str]) -> None:
    """Send a message to each of the sessions, one a second, whether or not the earlier ones are answered."""
    await asyncio.sleep(user / OTHERS)
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, session in enumerate(sessions):
            await asyncio.sleep(max(0.0, began + number - time.monotonic()))
            tasks.create_task(turns.take(f"user-{user}", session))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
