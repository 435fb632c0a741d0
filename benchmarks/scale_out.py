"""Turns per second with more and more worker processes and several APIs on one PostgreSQL, and what saturates.

`python -m benchmarks.scale_out`. The model is inside the workers and takes 0.3 s, which costs no processor; so many
sessions post turn after turn, each in one session of its own, without a pause. For each number of workers, with an
owner for each session, and for the most workers once more with one owner of all: turns per second, p50 and p99 (of
whole turns, the model's time in them), how fair they are shared (the mean turn of the slowest session over that of the
median, the least and the most turns a session got, Jain's index of them), cores in use by each role and by the whole
machine, transactions and WAL per turn, and how long the oldest waiting turn had waited. The client runs on the same
machine. Below the table: the role that has no more to give, and what the database's connections waited for.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil

from benchmarks.scale_meters import FLUSH_SECONDS, Counted, CpuMeter, Samples, count, sample, used_between
from benchmarks.scale_services import Cluster, Ground, run_cluster
from benchmarks.scale_table import Cell, render
from benchmarks.servers import dsn_of, run_postgres
from benchmarks.throughput_load import Talk, press_doors

WARM_SECONDS = 2.0
WHOLE = Talk(turns_per_session=1_000_000)
"""One session for each client, as long as the measurement."""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    numbers = [int(number) for number in options.workers.split(",")]
    wanted = [(number, options.sessions) for number in numbers] + [(max(numbers), 1)]
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="scale-out-", ignore_cleanup_errors=True) as name:
        async with run_postgres(Path(name)) as url:
            ground = Ground(Path(name), url, options.model_seconds)
            for workers, owners in wanted:
                cells.append(await _measure(ground, options, workers, owners))
                print(render(cells[-1:]), flush=True)
    print(f"\nAll of it: {options.sessions} sessions, {options.apis} APIs\n\n{render(cells)}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_out", description=__doc__)
    parser.add_argument("--workers", default="1,2,4", help="how many worker processes, one measurement for each")
    parser.add_argument("--apis", type=int, default=2, help="`serve --no-worker` processes")
    parser.add_argument("--sessions", type=int, default=200, help="clients at once, each in a session of its own")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    parser.add_argument("--model-seconds", type=float, default=0.3, help="how long the model takes")
    return parser.parse_args(arguments)


async def _measure(ground: Ground, options: argparse.Namespace, workers: int, owners: int) -> Cell:
    with run_cluster(ground, workers=workers, apis=options.apis) as cluster:
        return await _cell(ground, cluster, options, owners)


async def _cell(ground: Ground, cluster: Cluster, options: argparse.Namespace, owners: int) -> Cell:
    """Warm up, then press and measure."""
    doors = cluster.doors(options.sessions, owners)
    await press_doors(doors, min(WARM_SECONDS, options.seconds), WHOLE)
    connection = await asyncpg.connect(dsn_of(ground.database_url))
    try:
        samples, meter = Samples(), CpuMeter(cluster, connection.get_server_pid())
        await asyncio.sleep(FLUSH_SECONDS)
        counted, before, began = await count(connection), meter.read(), time.monotonic()
        sampling = asyncio.create_task(sample(connection, samples))
        measured = await press_doors(doors, options.seconds, WHOLE)
        cpu = used_between(before, meter.read(), time.monotonic() - began)
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling  # raises what broke it
        await asyncio.sleep(FLUSH_SECONDS)
        after = await count(connection)
    finally:
        await connection.close()
    return Cell(
        workers=len(cluster.workers),
        owners=owners,
        model_seconds=options.model_seconds,
        cores=psutil.cpu_count() or 1,
        measured=measured,
        cpu=cpu,
        used=Counted(after.transactions - counted.transactions, after.wal_bytes - counted.wal_bytes),
        samples=samples,
    )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
