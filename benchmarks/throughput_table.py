"""The figures of `benchmarks.throughput` as Markdown, and what they must reach."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.figures import aligned
from benchmarks.throughput_cost import Cost
from benchmarks.throughput_load import Measured

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
