"""The embedded PostgreSQL is killed with -9 every few seconds under writers; the service brings it back itself."""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types

from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.client import open_client
from chaos.cluster import open_cluster, servers
from chaos.grounds import Grounds, open_grounds
from chaos.notes import check_notes
from chaos.quiet import until_quiet
from chaos.report import Report
from chaos.stored import count_open_runs, read_stored
from chaos.writers import writing
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

FEWEST_SECONDS, MOST_SECONDS = 2.0, 5.0
QUIET_SECONDS, BACK_SECONDS = 60.0, 120.0
ROLES = (("serve",), ("serve",))


async def run_postgres(*, kills: int, writers: int, seed: int) -> tuple[Report, ...]:
    """Kill the server's first process, again and again, while two processes of the service keep it together."""
    async with open_grounds(own_database=False) as grounds:
        return (await _play(grounds, kills, writers, seed),)


async def _play(grounds: Grounds, kills: int, writers: int, seed: int) -> Report:
    dice = random.Random(seed)
    async with open_cluster(grounds, *ROLES) as nodes, open_client(servers(nodes)) as client:
        url, away = await _address(grounds), [0.0]
        async with writing(client, writers, seed) as crowd:
            for _ in range(kills):
                await asyncio.sleep(dice.uniform(FEWEST_SECONDS, MOST_SECONDS))
                await _kill_postgres(grounds)
                away.append(await _until_back(url))
        quiet = await until_quiet(url, seconds=QUIET_SECONDS)
        stored = await read_stored(url)
    counts = {
        "kills": kills,
        "writers": writers,
        "messages": len(client.log),
        "longest away s": round(max(away), 1),
        "slowest answer s": round(crowd.slowest_seconds, 1),
        "quiet after s": round(quiet, 1),
    }
    findings = (
        *check(client.log, stored, has_events=False),
        *check_read(stored, read_calls(grounds.calls_log)),
        *crowd.gave_up,
        *check_notes(grounds.notes),
    )
    return Report("postgres", counts, findings)


async def _kill_postgres(grounds: Grounds) -> None:
    """Kill the postmaster; the others of the server find that out and end, as after a lack of memory."""
    pid = await asyncio.to_thread(_postmaster, grounds.data_dir)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


async def _until_back(url: str) -> float:
    """Return after how many seconds the server answered again: it is killed while it serves, not while it recovers."""
    killed = time.monotonic()
    async with asyncio.timeout(BACK_SECONDS):
        while True:
            try:
                await count_open_runs(url)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(0.05)
            else:
                return time.monotonic() - killed


def _postmaster(data_dir: Path) -> int | None:
    """Return its process id; None while there is none."""
    for file in data_dir.rglob("postmaster.pid"):
        pid = int(file.read_text().split("\n", 1)[0])
        if Path(f"/proc/{pid}").exists():
            return pid
    return None


async def _address(grounds: Grounds) -> str:
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=grounds.data_dir))
    try:
        return server.url
    finally:
        await server.stop()
