"""What runs cost that wait for their clients, and whether each goes on: a thousand of them beside none.

`python -m benchmarks.waiting_runs`. The model calls a tool of the client for each question, so that the run waits.
First each client brings the result at once; then all runs wait before the first result is brought. After both, while
nobody asks anything, the service is looked at: the same process, which has taken as many turns before. Fails if a run
did not wait, or did not answer with its own result.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import httpx
import psutil

from benchmarks.figures import aligned, connected, held_mb, percentile
from benchmarks.processes import MODEL, Running, run_service, write_agent
from benchmarks.statement_log import StatementLog, run_logged_postgres

AGENT = "plain"
WEATHER = {"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": {}}}
TIMEOUT_SECONDS = 300.0
SETTLE_SECONDS = 5.0
"""What the last turns have started in the background is over by then."""

IDLE = ("idle service", "RSS MB", "SQL a minute", "database connections", "client connections")
TURNS = ("turns", "turns/s", "asked p50 ms", "p95 ms", "resumed p50 ms", "p95 ms")
BACKENDS = """
    select count(*) from pg_stat_activity
    where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
"""


class WrongAnswer(Exception):
    """A run did not wait for its client, or did not answer with what its client brought."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that waits: its id, that of its call, and what its client will bring."""

    run_id: str
    call_id: str
    result: str


@dataclass(slots=True)
class Clients:
    """So many clients of a service, and how long each of their requests took."""

    http: httpx.AsyncClient
    count: int
    asked: list[float] = field(default_factory=list)
    resumed: list[float] = field(default_factory=list)

    async def ask(self, number: int) -> Waiting:
        """Ask in a new session what the model answers with a call. Raises WrongAnswer."""
        created = (await self.http.post("/v1/sessions", json={"agent": AGENT})).raise_for_status().json()
        body = {"content": f"Question {number}?", "tools": [WEATHER]}
        began = time.monotonic()
        answer = (await self.http.post(f"/v1/sessions/{created['id']}/messages", json=body)).raise_for_status().json()
        self.asked.append(time.monotonic() - began)
        if answer["run"]["status"] != "waiting":
            raise WrongAnswer(f"{answer['run']} does not wait")
        return Waiting(answer["run"]["id"], answer["run"]["waiting_for"]["calls"][0]["id"], f"result {number}.")

    async def resume(self, waiting: Waiting) -> None:
        """Bring the result and wait for the answer. Raises WrongAnswer."""
        body = {"calls": [{"call_id": waiting.call_id, "output": waiting.result}]}
        began = time.monotonic()
        answer = (await self.http.post(f"/v1/runs/{waiting.run_id}/resume", json=body)).raise_for_status().json()
        self.resumed.append(time.monotonic() - began)
        if not answer["message"]["content"].endswith(waiting.result):
            raise WrongAnswer(f"{answer['message']} does not answer with {waiting.result!r}")

    async def ask_and_resume(self, number: int) -> None:
        """Take a whole turn."""
        await self.resume(await self.ask(number))

    async def each(self, number: int, does: Callable[[int], Awaitable[None]]) -> float:
        """Have the clients do something for each number up to one; return the seconds it took."""
        numbers = iter(range(number))

        async def work() -> None:
            for mine in numbers:
                await does(mine)

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.count):
                tasks.create_task(work())
        return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Watched:
    """A service and what is seen of it while nobody asks it anything."""

    service: Running
    connection: asyncpg.Connection
    log: StatementLog

    async def idle_row(self, label: str, seconds: float) -> list[str]:
        """Return memory, statements a minute, and connections to the database and of clients."""
        await asyncio.sleep(SETTLE_SECONDS)
        held = held_mb(self.service.pid)
        async with self.log.on(ignored_pid=self.connection.get_server_pid()) as logged:
            await asyncio.sleep(seconds)
        per_minute = 60 * logged.statements / logged.seconds
        of_database = await self.connection.fetchval(BACKENDS)
        figures = (f"{held:.1f}", f"{per_minute:.0f}", str(of_database), str(_open_to(self.service)))
        return [label, *figures]


def _open_to(service: Running) -> int:
    """Return how many connections of clients the service has open."""
    port = httpx.URL(service.url).port
    found = psutil.Process(service.pid).net_connections("tcp")
    return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in found)


@asynccontextmanager
async def _clients(watched: Watched, options: argparse.Namespace) -> AsyncGenerator[Clients]:
    """Yield clients whose connections are closed after the block."""
    limits = httpx.Limits(max_connections=options.clients)
    async with httpx.AsyncClient(base_url=watched.service.url, timeout=TIMEOUT_SECONDS, limits=limits) as http:
        yield Clients(http, options.clients)


def _turns_row(label: str, clients: Clients, seconds: float) -> list[str]:
    """Return turns per second, each asked and resumed, and how long both took."""
    took = [percentile(times, percent) for times in (clients.asked, clients.resumed) for percent in (50, 95)]
    return [label, f"{len(clients.resumed) / seconds:.1f}", *(f"{1000 * one:.0f}" for one in took)]


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print. Raises WrongAnswer, in a group of errors."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="waiting-") as name:
        write_agent(Path(name), AGENT)
        async with run_logged_postgres(Path(name)) as (url, log), connected(url) as connection:
            environment = {"DATABASE_URL": url, "DEFAULT_LLM": f"openai:{MODEL}"}
            with run_service(Path(name), environment, module="benchmarks.instant_model") as service:
                await _measure(Watched(service, connection, log), options)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting_runs", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="how many wait at a time")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="how long the idle service is watched")
    return parser.parse_args(arguments)


async def _measure(watched: Watched, options: argparse.Namespace) -> None:
    """Take the turns one by one and then all at a time, watch the idle service after each, and print it."""
    waiting: list[Waiting] = []
    idle_rows: list[Sequence[str]] = [IDLE]
    async with _clients(watched, options) as clients:
        await clients.each(options.runs, clients.ask_and_resume)  # what a first thousand of turns loads is loaded then
    async with _clients(watched, options) as clients:
        seconds = await clients.each(options.runs, clients.ask_and_resume)
        turns: list[Sequence[str]] = [TURNS, _turns_row("each resumed at once", clients, seconds)]
    idle_rows.append(await watched.idle_row("no run waits", options.idle_seconds))

    async def ask(number: int) -> None:
        waiting.append(await clients.ask(number))

    async def resume(number: int) -> None:
        await clients.resume(waiting[number])

    async with _clients(watched, options) as clients:
        seconds = await clients.each(options.runs, ask)
        asked = clients.asked
    idle_rows.append(await watched.idle_row(f"{options.runs} wait", options.idle_seconds))
    async with _clients(watched, options) as clients:
        clients.asked = asked
        seconds += await clients.each(options.runs, resume)
        turns.append(_turns_row(f"{options.runs} wait first", clients, seconds))
    idle_rows.append(await watched.idle_row("all have ended", options.idle_seconds))
    print(f"{options.clients} clients; load {os.getloadavg()[0]:.1f}")
    print(aligned(turns), aligned(idle_rows), sep="\n\n")
    print(f"\nEach of the {len(clients.resumed)} runs that waited has answered with its own result.")


if __name__ == "__main__":
    asyncio.run(main())
