"""Turns per second over HTTP, beside a bare turn without our features: same run, same database server, same model.

`python -m benchmarks.throughput`. Each client talks in sessions of a few turns, one after the other; the two services
are measured in turns, so that whatever slows the machine slows both. First the model answers at once and the clients
never pause: a model behind HTTP, then one inside the service's process, where nothing but the service takes time. Each
row says what a turn takes, how fair it is (the mean turn of the slowest session over that of the median session), how
often a client was refused with 503 and came again, and what a turn costs: SQL statements with BEGIN and COMMIT,
transactions, WAL, CPU of the service's process. Then the model takes a second, and users think between an answer and
their next message: what the turn adds to that second is the service's. Exits with 1 if an aim is missed, and names it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.servers import dsn_of
from benchmarks.statement_log import StatementLog, run_logged_postgres
from benchmarks.throughput_cost import Meter, Used, cost_of
from benchmarks.throughput_load import Measured, Users, added, press
from benchmarks.throughput_services import KINDS, ModelKind, Services, run_both
from benchmarks.throughput_table import Cell, Side, missed, missed_added, render, render_added

SHORT_SECONDS = 2.0
"""How long a warm-up lasts, and a pass that counts statements, at the most."""

IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """How hard to press: clients at once, seconds of one measurement, how often each service is measured."""

    clients: tuple[int, ...]
    seconds: float
    rounds: int

    @property
    def short_seconds(self) -> float:
        """The length of what is not timed."""
        return min(self.seconds, SHORT_SECONDS)


@dataclass(frozen=True, slots=True)
class Target:
    """A service with its meter, and what it uses when nobody asks it anything."""

    url: str
    meter: Meter
    idle: Used


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    load = Load(tuple(int(item) for item in options.clients.split(",")), options.seconds, options.rounds)
    kinds = KINDS if options.model_kind == "both" else (options.model_kind,)
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        async with run_logged_postgres(folder) as (url, log):
            cells = [cell for kind in kinds for cell in await _cells(folder, (url, log), kind, load)]
            print(render(cells))
            problems = missed(cells)
            if options.users:
                users = Users(options.users, options.model_seconds, options.pause)
                problems += await _with_slow_model(folder, url, users, options.users_seconds)
    print("\n".join(("", *problems)) if problems else "\nEvery aim is reached.")
    return 1 if problems else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each service")
    parser.add_argument("--model-kind", choices=(*KINDS, "both"), default="both", help="where the instant model is")
    parser.add_argument("--users", type=int, default=200, help="people at once, for what a turn adds to the model")
    parser.add_argument("--model-seconds", type=float, default=1.0, help="how long the model takes for them")
    parser.add_argument("--pause", type=float, default=9.0, help="seconds they think, on average")
    parser.add_argument("--users-seconds", type=float, default=60.0, help="how long they are measured")
    return parser.parse_args(arguments)


async def _cells(folder: Path, database: tuple[str, StatementLog], kind: ModelKind, load: Load) -> list[Cell]:
    url, log = database
    with run_both(folder, url, kind) as services:
        connection = await asyncpg.connect(dsn_of(url))
        try:
            targets = await _targets(services, connection, log)
            return [await _cell(targets, kind, load, clients) for clients in load.clients]
        finally:
            await connection.close()


async def _targets(services: Services, connection: asyncpg.Connection, log: StatementLog) -> tuple[Target, Target]:
    """Return ours and the bare one; what they use while idle is known of both together, save for the CPU."""
    targets: list[Target] = []
    for service in (services.ours, services.bare):
        await press(service.url, 1, SHORT_SECONDS)
        meter = Meter(connection, log, service.pid)
        targets.append(Target(service.url, meter, await meter.counted(_nothing)))
    return targets[0], targets[1]


async def _nothing() -> Measured:
    began = time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    return Measured(time.monotonic() - began, ())


async def _cell(targets: tuple[Target, Target], kind: ModelKind, load: Load, clients: int) -> Cell:
    """Warm both up, time them in turns, and count their statements."""
    timed: tuple[list[tuple[Measured, Used]], ...] = ([], [])
    for target in targets:
        await press(target.url, clients, load.short_seconds)
    for number in range(load.rounds):
        pairs = list(zip(timed, targets, strict=True))
        for results, target in pairs if number % 2 == 0 else reversed(pairs):
            results.append(await target.meter.timed(partial(press, target.url, clients, load.seconds)))
    sides: list[Side] = []
    for results, target in zip(timed, targets, strict=True):
        counted = await target.meter.counted(partial(press, target.url, clients, load.short_seconds))
        cost = cost_of([used for _, used in results], counted, target.idle)
        sides.append(Side(tuple(measured for measured, _ in results), cost))
    return Cell(kind, clients, *sides)


async def _with_slow_model(folder: Path, url: str, users: Users, seconds: float) -> list[str]:
    """Print what both services add to a slow model's time; return the aims that are missed."""
    with run_both(folder, url, "http", users.model_seconds) as services:
        both = [await added(service.url, users, seconds) for service in (services.ours, services.bare)]
    print(render_added(users, both))
    return missed_added(both[0])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
