"""SIGSTOP and SIGCONT: a worker sleeps past its lease, another takes its runs, and the sleeper may change nothing."""

import asyncio
import random

from chaos.bench import FORMS, open_bench
from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.client import open_client
from chaos.cluster import any_of, open_cluster, servers
from chaos.grounds import LEASE_SECONDS, Grounds, new_database, open_grounds
from chaos.notes import check_notes
from chaos.points import Side
from chaos.quiet import until_quiet
from chaos.report import Report
from chaos.stored import read_stored
from chaos.turns import KINDS, TurnKind
from chaos.writers import writing

ROLES = (("serve", "--no-worker"), ("worker",), ("worker",))
_, WORKER = FORMS
PAST_LEASE_SECONDS = 1.5
TRIES = 2


async def run_pause(*, pauses: int, writers: int, seed: int) -> tuple[Report, ...]:
    """Pause one of two workers past its lease, let it go on, and again, under writers; then at every point of turns."""
    async with open_grounds() as grounds:
        at_random = await _play(grounds, pauses, writers, seed)
        urls = [await new_database(grounds.database_url) for _ in KINDS]
        at_points = await asyncio.gather(
            *(_stop_everywhere(grounds, url, kind) for url, kind in zip(urls, KINDS, strict=True))
        )
        return (at_random, *at_points)


async def _stop_everywhere(grounds: Grounds, url: str, kind: TurnKind) -> Report:
    async with open_bench(grounds, WORKER, url) as bench:
        waiting = [point for point in await bench.points(kind) if point.side is Side.AFTER]
        points = len(waiting)
        for _ in range(TRIES):
            waiting = [point for point in waiting if not await bench.stop_at(kind, point)]
        await until_quiet(url)
        stored = await read_stored(url)
        skipped = check_read(stored, read_calls(grounds.calls_log))
        findings = (*check(bench.client.log, stored), *skipped, *bench.late, *check_notes(grounds.notes))
    counts = {
        "points": points,
        "pauses": bench.hits,
        "not reached": len(waiting),
        "messages": len(bench.client.log),
        "slowest recovery s": round(max(bench.recoveries, default=0.0), 1),
    }
    return Report(f"pause: {kind.name}", counts, findings, tuple(f"not reached: {point}" for point in waiting))


async def _play(grounds: Grounds, pauses: int, writers: int, seed: int) -> Report:
    dice = random.Random(seed)
    async with open_cluster(grounds, *ROLES) as nodes, open_client(servers(nodes)) as client:
        async with writing(client, writers, seed) as crowd:
            for _ in range(pauses):
                await asyncio.sleep(dice.uniform(0, 1))
                await any_of(nodes[1:], dice).pause(LEASE_SECONDS + dice.uniform(0, PAST_LEASE_SECONDS))
        await until_quiet(grounds.database_url)
        stored = await read_stored(grounds.database_url)
    counts = {
        "pauses": pauses,
        "writers": writers,
        "messages": len(client.log),
        "resumed runs": sum(run.attempt > 1 for run in stored.runs),
        "slowest answer s": round(crowd.slowest_seconds, 1),
    }
    skipped = check_read(stored, read_calls(grounds.calls_log))
    findings = (*check(client.log, stored), *skipped, *crowd.gave_up, *check_notes(grounds.notes))
    return Report("pause: at random", counts, findings)
