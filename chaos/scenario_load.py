"""Kill -9 of workers under load: two servers, four workers, many writers; half of the kills while a side job is done.

A worker also does side jobs. What it was doing when it died another does once the dead one's silence is noticed.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types

from chaos.calls import check_read, read_calls
from chaos.check import check, check_jobs
from chaos.client import open_client
from chaos.cluster import Node, any_of, open_cluster, servers
from chaos.grounds import Grounds, open_grounds
from chaos.notes import check_notes
from chaos.quiet import until_jobs_over, until_quiet
from chaos.report import Report
from chaos.stored import read_jobs, read_stored
from chaos.writers import writing
from throughline.db.connection.address import parse_address

ROLES = (("serve", "--no-worker"),) * 2 + (("worker",),) * 4
SUMMARY_SECONDS = 0.3
MOST_SECONDS_BETWEEN = 2.0
AIM_SECONDS = 10.0
"""How long a kill waits for a job in hand; where none comes it is one at random."""

QUIET_SECONDS = 60.0
"""Many writers on few cores: what waits at the end may take longer than one lease."""

JOBS_SECONDS = 240.0
"""Jobs of a dead process are claimed once their lease of 30 s is over, and after a rest from the second death on."""

_IN_HAND = """
    select exists (
        select from jobs where lease_until > now() + interval '29.7 seconds'
    )
"""
# The dead leave jobs that are held, too: only what was claimed or renewed just now is held by a living process.


async def run_load(*, kills: int, writers: int, seed: int) -> tuple[Report, ...]:
    """Kill a worker, start the next in its place, and again."""
    async with open_grounds(summary_seconds=SUMMARY_SECONDS) as grounds:
        return (await _play(grounds, kills, writers, seed),)


@dataclass(slots=True)
class Hunter:
    """Kills one worker after the other. `aimed` counts the kills while a process had a job in hand."""

    connection: asyncpg.Connection
    workers: list[Node]
    dice: random.Random
    aimed: int = 0
    missed: int = 0

    async def hunt(self, kills: int) -> None:
        """Kill so many, every other one at a moment when a job is in hand."""
        for number in range(kills):
            await asyncio.sleep(self.dice.uniform(0, MOST_SECONDS_BETWEEN))
            victim = any_of(self.workers, self.dice)
            if number % 2 == 0:
                is_aimed = await self._job_in_hand()
                self.aimed += is_aimed
                self.missed += not is_aimed
            await victim.replace()

    async def _job_in_hand(self) -> bool:
        """Wait for a moment when a job is in hand.

        Which process has it the database does not tell: how many kills hit one the jobs taken again say.
        """
        deadline = time.monotonic() + AIM_SECONDS
        while time.monotonic() < deadline:
            if await self.connection.fetchval(_IN_HAND):
                return True
            await asyncio.sleep(0.01)
        return False


@asynccontextmanager
async def _hunter(grounds: Grounds, nodes: list[Node], seed: int) -> AsyncGenerator[Hunter]:
    connection = await asyncpg.connect(**parse_address(grounds.database_url).arguments())
    try:
        yield Hunter(connection, [node for node in nodes if node.port is None], random.Random(seed))
    finally:
        await connection.close()


async def _play(grounds: Grounds, kills: int, writers: int, seed: int) -> Report:
    url = grounds.database_url
    async with (
        open_cluster(grounds, *ROLES) as nodes,
        open_client(servers(nodes)) as client,
        _hunter(grounds, nodes, seed) as hunter,
    ):
        async with writing(client, writers, seed) as crowd:
            await hunter.hunt(kills)
        await until_quiet(url, seconds=QUIET_SECONDS)
        jobs_seconds = await until_jobs_over(url, seconds=JOBS_SECONDS)
        stored, jobs = await read_stored(url), await read_jobs(url)
    findings = [
        *check(client.log, stored),
        *check_jobs(jobs),
        *check_read(stored, read_calls(grounds.calls_log)),
        *crowd.gave_up,
        *check_notes(grounds.notes),
    ]
    counts = {
        "kills": kills,
        "with a job in hand": hunter.aimed,
        "aimed in vain": hunter.missed,
        "writers": writers,
        "messages": len(client.log),
        "resumed runs": sum(run.attempt > 1 for run in stored.runs),
        "summaries": len(stored.summaries),
        "jobs over after s": round(jobs_seconds, 1),
        "slowest answer s": round(crowd.slowest_seconds, 1),
    }
    return Report("load", counts, tuple(findings))
