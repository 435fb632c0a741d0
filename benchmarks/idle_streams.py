"""What event streams cost while nothing happens: share of a core, and what other requests notice of them.

`python -m benchmarks.idle_streams`. Each stream follows a run of its own that is held for ever by nobody, over a raw
socket; the service and the database are processes of their own. Exits with 1 if the aim for the service is missed.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # ships no types
import httpx
import psutil

from benchmarks.processes import Running, ServiceOptions, run_service
from benchmarks.servers import dsn_of, run_postgres

AIM_STREAMS, AIM_SHARE = 2_000, 0.05
SETTLE_SECONDS = 8.0
BATCH = 50
HELD = "update runs set status = 'running', fence = 1, started_at = now(), lease_until = now() + interval '1 day'"
REQUEST = "GET /v1/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Cost:
    """Shares of a core, and the median of a small request in milliseconds, while so many streams are idle."""

    streams: int
    service: float
    database: float
    get_ms: float

    def __str__(self) -> str:
        """Return the cost as a row."""
        return f"{self.streams:>8,}  {self.service:>8.1%}  {self.database:>8.1%}  {self.get_ms:>7.2f} ms"


@dataclass(frozen=True, slots=True)
class Machines:
    """The service, its database, and that one's postmaster."""

    service: Running
    database_url: str
    postmaster: int


def main() -> None:
    """Measure, print the table, and exit with 1 if the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, nargs="+", default=[0, 500, AIM_STREAMS])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    asked = parser.parse_args()
    costs = asyncio.run(measure(sorted(asked.streams), asked.seconds))
    at_aim = [cost.service for cost in costs if cost.streams == AIM_STREAMS]
    sys.exit(1 if at_aim and at_aim[0] > AIM_SHARE else 0)


async def measure(numbers: list[int], seconds: float) -> list[Cost]:
    """Return the cost for each number of streams; each row is printed as it is known."""
    costs = []
    async with _machines() as machines:
        runs = await _hold_runs(machines, max([*numbers, 1]))
        print(" streams   service  database  a GET")  # the table
        for number in numbers:
            async with _following(machines.service.url, runs[:number]):
                costs.append(await _cost(machines, number, runs[0], seconds))
            print(costs[-1], flush=True)
    return costs


@contextlib.asynccontextmanager
async def _machines() -> AsyncIterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="tl-") as name:
        folder = Path(name)
        async with run_postgres(folder) as url:
            options = ServiceOptions(folder, environment={"DATABASE_URL": url}, arguments=("--no-worker",))
            with run_service(options) as service:
                yield Machines(service, url, await _postmaster(url))


async def _postmaster(url: str) -> int:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        backend: int = await connection.fetchval("select pg_backend_pid()")
        return int(psutil.Process(backend).ppid())  # while the connection, and so the process, is there
    finally:
        await connection.close()


async def _hold_runs(machines: Machines, number: int) -> list[str]:
    """Return runs that will not go on, each of a session of its own."""
    async with httpx.AsyncClient(base_url=machines.service.url, timeout=60) as client:

        async def begin() -> str:
            session = (await client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
            path, headers = f"/v1/sessions/{session}/messages", {"Prefer": "respond-async"}
            accepted = await client.post(path, json={"content": "hold on"}, headers=headers)
            return str(accepted.json()["run"]["id"])

        runs: list[str] = []
        while len(runs) < number:
            runs += await asyncio.gather(*(begin() for _ in range(min(BATCH, number - len(runs)))))
    connection = await asyncpg.connect(dsn_of(machines.database_url))
    await connection.execute(HELD)
    await connection.close()
    return runs


@contextlib.asynccontextmanager
async def _following(url: str, runs: list[str]) -> AsyncIterator[None]:
    """Keep a stream open for each run, and read what comes."""
    address = urlsplit(url)
    writers: list[asyncio.StreamWriter] = []

    async def follow(run: str) -> "asyncio.Task[None]":
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writers.append(writer)
        writer.write(REQUEST.format(run=run).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        return asyncio.create_task(_drain(reader))

    reading: list[asyncio.Task[None]] = []
    for first in range(0, len(runs), BATCH):
        reading += await asyncio.gather(*(follow(run) for run in runs[first : first + BATCH]))
    try:
        yield
        assert not any(task.done() for task in reading), "a stream was closed"
    finally:
        for writer in writers:
            writer.close()
        for task in reading:
            task.cancel()


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        """Comments only."""


async def _cost(machines: Machines, streams: int, run: str, seconds: float) -> Cost:
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = _used(machines), time.monotonic()
    await asyncio.sleep(seconds)
    after, took = _used(machines), time.monotonic() - began
    shares = [(late - early) / took for early, late in zip(before, after, strict=True)]
    return Cost(streams, shares[0], shares[1], await _median_get_ms(machines.service.url, run))


def _used(machines: Machines) -> tuple[float, float]:
    """Return the seconds of processor time of the service, and of the database with all its processes."""
    postmaster = psutil.Process(machines.postmaster)
    database = [postmaster, *postmaster.children(recursive=True)]
    return _cpu(psutil.Process(machines.service.pid)), sum(_cpu(process) for process in database)


def _cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


async def _median_get_ms(url: str, run: str) -> float:
    took = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for _ in range(300):
            began = time.perf_counter()
            (await client.get(f"/v1/runs/{run}")).raise_for_status()
            took.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.005)
    return statistics.median(took)


if __name__ == "__main__":
    main()
