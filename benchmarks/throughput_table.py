"""The figures of `benchmarks.throughput` as Markdown, and what they must reach."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.figures import aligned, cpu_seconds, wal_position
from benchmarks.statement_log import StatementLog
from benchmarks.throughput_load import Measured

Press = Callable[[], Awaitable[Measured]]


@dataclass(frozen=True, slots=True)
class Used:
    """What was used in so many seconds, by so many turns and whatever else went on."""

    seconds: float
    turns: int = 0
    cpu_seconds: float = 0.0
    wal_bytes: float = 0.0
    statements: float = 0.0
    transactions: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one turn costs; making its session is shared among the session's turns."""

    statements: float
    commits: float
    wal_bytes: float
    cpu_ms: float


def cost_of(timed: Sequence[Used], counted: Used, idle: Used) -> Cost:
    """Return what a turn costs, less what an idle service uses in the same time.

    CPU and WAL are those of the timed rounds, statements and transactions those of the pass they were counted in.
    """
    turns = sum(one.turns for one in timed)
    seconds = sum(one.seconds for one in timed)
    spare, counted_spare = seconds / idle.seconds, counted.seconds / idle.seconds
    return Cost(
        statements=(counted.statements - counted_spare * idle.statements) / counted.turns,
        commits=(counted.transactions - counted_spare * idle.transactions) / counted.turns,
        wal_bytes=(sum(one.wal_bytes for one in timed) - spare * idle.wal_bytes) / turns,
        cpu_ms=1000 * (sum(one.cpu_seconds for one in timed) - spare * idle.cpu_seconds) / turns,
    )


class Meter:
    """Measures what a service uses while clients press it; nobody else may press the same database."""

    def __init__(self, connection: asyncpg.Connection, log: StatementLog, pid: int) -> None:
        """Take what it reads, and the service's process."""
        self._connection, self._log, self._pid = connection, log, pid

    async def timed(self, press: Press) -> tuple[Measured, Used]:
        """Return what `press` measures, and the CPU and WAL it took."""
        began, cpu, wal = time.monotonic(), cpu_seconds(self._pid), await wal_position(self._connection)
        measured = await press()
        used = Used(
            seconds=time.monotonic() - began,
            turns=len(measured.turns),
            cpu_seconds=cpu_seconds(self._pid) - cpu,
            wal_bytes=await wal_position(self._connection) - wal,
        )
        return measured, used

    async def counted(self, press: Press) -> Used:
        """Return all that `press` uses, statements too: they are logged, which takes time."""
        async with self._log.on(ignored_pid=self._connection.get_server_pid()) as logged:
            _, used = await self.timed(press)
        return replace(used, seconds=logged.seconds, statements=logged.statements, transactions=logged.transactions)


AIM_RATIO, RATIO_CLIENTS = 0.8, (1, 16, 64)
AIM_P99_RATIO, P99_CLIENTS = 1.5, (64,)
AIM_FAIRNESS = 2.0
FIGURES = ("turns/s", "p50 ms", "p99 ms", "fairness", "503s", "SQL", "commits", "WAL bytes", "CPU ms")


@dataclass(frozen=True, slots=True)
class Side:
    """One service under one load: what each round measured, and what a turn cost."""

    rounds: tuple[Measured, ...]
    cost: Cost

    def median(self, figure: Callable[[Measured], float]) -> float:
        """Return the median of a figure over the rounds."""
        return statistics.median(figure(one) for one in self.rounds)

    def milliseconds(self, percent: int) -> float:
        """Return the median over the rounds of what this percentage of the turns was answered in."""
        return self.median(lambda one: one.milliseconds(percent))


@dataclass(frozen=True, slots=True)
class Cell:
    """Both services at one number of clients with one kind of model."""

    kind: str
    clients: int
    ours: Side
    bare: Side

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios of turns per second."""
        pairs = zip(self.ours.rounds, self.bare.rounds, strict=True)
        return statistics.median(ours.rate / bare.rate for ours, bare in pairs)

    @property
    def p99_ratio(self) -> float:
        """Our p99 over the bare one."""
        return self.ours.milliseconds(99) / self.bare.milliseconds(99)


def render(cells: Sequence[Cell]) -> str:
    """Return two rows for each cell: medians over the rounds, and what a turn costs."""
    lines: list[Sequence[str]] = [("model", "clients", "service", *FIGURES, "ratio")]
    for cell in cells:
        lines.append([cell.kind, str(cell.clients), "ours", *_figures(cell.ours), f"{cell.ratio:.2f}"])
        lines.append([cell.kind, str(cell.clients), "bare", *_figures(cell.bare), ""])
    return aligned(lines)


def missed(cells: Sequence[Cell]) -> list[str]:
    """Return the aims that our service misses under load, one line each."""
    lines: list[str] = []
    for cell in cells:
        where = f"{cell.kind} model, {cell.clients} clients"
        fairness = cell.ours.median(lambda one: one.fairness)
        if cell.clients in RATIO_CLIENTS and cell.ratio < AIM_RATIO:
            lines.append(f"{where}: {cell.ratio:.2f} times the bare turns/s (aim: {AIM_RATIO:g} at least)")
        if cell.clients in P99_CLIENTS and cell.p99_ratio > AIM_P99_RATIO:
            lines.append(f"{where}: p99 is {cell.p99_ratio:.2f} times the bare one (aim: {AIM_P99_RATIO:g} at most)")
        if fairness > AIM_FAIRNESS:
            lines.append(
                f"{where}: the slowest session takes {fairness:.2f} times the median (aim: {AIM_FAIRNESS:g} at most)"
            )
    return lines


def _figures(side: Side) -> list[str]:
    cost = side.cost
    return [
        f"{side.median(lambda one: one.rate):.1f}",
        f"{side.milliseconds(50):.0f}",
        f"{side.milliseconds(99):.0f}",
        f"{side.median(lambda one: one.fairness):.2f}",
        str(sum(one.refused for one in side.rounds)),
        f"{cost.statements:.1f}",
        f"{cost.commits:.1f}",
        f"{cost.wal_bytes:.0f}",
        f"{cost.cpu_ms:.1f}",
    ]
