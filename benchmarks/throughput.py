"""Turns per second over HTTP, beside a bare turn without our features: same run, same database server, same model.

`python -m benchmarks.throughput`. Each client talks in sessions of a few turns, one after the other; the two services
are measured in turns, so that whatever slows the machine slows both. The model answers at once and the clients never
pause: first a model behind HTTP, then one inside the service's process, where nothing but the service takes time. Each
row says what a turn takes, how fair it is (the mean turn of the slowest session over that of the median session), how
often a client was refused with 503 and came again, and what a turn costs: SQL statements with BEGIN and COMMIT,
transactions, WAL, CPU of the service's process. Exits with 1 if an aim is missed, and names it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.figures import connected
from benchmarks.processes import MODEL, Running, run_double, run_server, run_service, write_agent
from benchmarks.statement_log import StatementLog, run_logged_postgres
from benchmarks.throughput_load import AGENT, Measured, press
from benchmarks.throughput_table import Cell, Meter, Side, Used, cost_of, missed, render

KINDS = ("http", "in-process")
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
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        async with run_logged_postgres(Path(name)) as (url, log):
            cells = [cell for kind in KINDS for cell in await _cells(Path(name), (url, log), kind, load)]
    print(render(cells))
    problems = missed(cells)
    print("\n".join(("", *problems)) if problems else "\nEvery aim is reached.")
    return 1 if problems else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--clients", default="1,16,64,256")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each service")
    return parser.parse_args(arguments)


@contextmanager
def run_both(folder: Path, database_url: str, kind: str) -> Generator[tuple[Running, Running]]:
    """Run our service and the bare one: with a provider double, or with an instant model inside them."""
    write_agent(folder, AGENT)  # no tools: the bare turn offers none either
    with ExitStack() as stack:
        double_url = stack.enter_context(run_double(folder)).url if kind == "http" else ""
        module = "throughline.main" if kind == "http" else "benchmarks.instant_model"
        environment = {"DATABASE_URL": database_url}
        if kind != "http":
            environment["DEFAULT_LLM"] = f"openai:{MODEL}"
        ours = run_service(folder, environment, double_url=double_url, module=module)
        command = ["benchmarks.bare_service", "--database-url", database_url, "--model-url", double_url]
        bare = run_server(command, folder, {}, probe="/health/ready")
        yield stack.enter_context(ours), stack.enter_context(bare)


async def _cells(folder: Path, database: tuple[str, StatementLog], kind: str, load: Load) -> list[Cell]:
    url, log = database
    with run_both(folder, url, kind) as services:
        async with connected(url) as connection:
            targets = [await warmed_target(service, connection, log) for service in services]
            return [await _cell(targets, kind, load, clients) for clients in load.clients]


async def warmed_target(service: Running, connection: asyncpg.Connection, log: StatementLog) -> Target:
    """Return a service with what it uses while idle: that is known of both together, save for the CPU."""
    await press(service.url, 1, SHORT_SECONDS)
    meter = Meter(connection, log, service.pid)
    return Target(service.url, meter, await meter.counted(_nothing))


async def _nothing() -> Measured:
    began = time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    return Measured(time.monotonic() - began, ())


async def _cell(targets: Sequence[Target], kind: str, load: Load, clients: int) -> Cell:
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


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
