"""Kill -9 before and after every SQL statement and outside call of a turn, as a trace of such turns found them."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import product

from chaos.bench import FORMS, Bench, open_bench
from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.grounds import new_database, open_grounds
from chaos.notes import check_notes
from chaos.quiet import until_quiet
from chaos.report import Report
from chaos.stored import read_stored
from chaos.turns import KINDS, TurnKind

BENCHES_AT_ONCE = 4
TRIES = 3
"""How often a point is tried that a turn may come past or not: polls, batches of events."""


async def run_points(*, runs: int, kinds: Sequence[TurnKind] = KINDS) -> tuple[Report, ...]:
    """Kill at every point of every kind of turn, `runs` times each, in both forms; several benches side by side."""
    room = asyncio.Semaphore(BENCHES_AT_ONCE)
    async with open_grounds() as grounds:
        plans = []
        for kind, form in product(kinds, FORMS):
            url = await new_database(grounds.database_url)  # one by one: Alembic migrates one at a time in a process
            plans.append(_kill_everywhere(open_bench(grounds, form, url), kind, runs, room))
        reports = await asyncio.gather(*plans)
        counts = {"noted": len(grounds.notes.read_text().splitlines()) if grounds.notes.exists() else 0}
        return (*reports, Report("points: tools that must not be repeated", counts, check_notes(grounds.notes)))


async def _kill_everywhere(
    opening: AbstractAsyncContextManager[Bench], kind: TurnKind, runs: int, room: asyncio.Semaphore
) -> Report:
    async with room, opening as bench:
        points = await bench.points(kind)
        waiting = [point for point in points for _ in range(runs)]
        for _ in range(TRIES):
            waiting = [point for point in waiting if not await bench.kill_at(kind, point)]
        await until_quiet(bench.database_url)
        stored = await read_stored(bench.database_url)
        findings = [*check(bench.client.log, stored), *check_read(stored, read_calls(bench.calls_log)), *bench.late]
    counts = {
        "points": len(points),
        "kills": bench.hits,
        "not reached": len(waiting),
        "messages": len(bench.client.log),
        "slowest recovery s": round(max(bench.recoveries, default=0.0), 1),
    }
    return Report(
        f"points: {kind.name}, {bench.form.name}",
        counts,
        tuple(findings),
        tuple(f"not reached: {point}" for point in waiting),
    )
