"""Kill -9 at random moments: two processes that serve and work, one of them always about to die, under writers."""

import asyncio
import random

from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.client import open_client
from chaos.cluster import any_of, open_cluster, servers
from chaos.grounds import Grounds, open_grounds
from chaos.notes import check_notes
from chaos.quiet import until_quiet
from chaos.report import Report
from chaos.stored import read_stored
from chaos.writers import writing

MOST_SECONDS_BETWEEN = 2.0


async def run_random(*, kills: int, writers: int, seed: int) -> tuple[Report, ...]:
    """Kill a process at a random moment, start the next in its place, and again."""
    async with open_grounds() as grounds:
        return (await _play(grounds, kills, writers, seed),)


async def _play(grounds: Grounds, kills: int, writers: int, seed: int) -> Report:
    dice = random.Random(seed)
    roles = (("serve",), ("serve",), ("worker",))
    async with open_cluster(grounds, *roles) as nodes, open_client(servers(nodes)) as client:
        async with writing(client, writers, seed) as crowd:
            for _ in range(kills):
                await asyncio.sleep(dice.uniform(0, MOST_SECONDS_BETWEEN))
                await any_of(nodes, dice).replace()
        await until_quiet(grounds.database_url)
        stored = await read_stored(grounds.database_url)
    findings = [
        *check(client.log, stored),
        *check_read(stored, read_calls(grounds.calls_log)),
        *crowd.gave_up,
        *check_notes(grounds.notes),
    ]
    counts = {
        "kills": kills,
        "writers": writers,
        "messages": len(client.log),
        "resumed runs": sum(run.attempt > 1 for run in stored.runs),
        "slowest answer s": round(crowd.slowest_seconds, 1),
    }
    return Report("random", counts, tuple(findings))
