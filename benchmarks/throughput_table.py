"""The figures of `benchmarks.throughput` as Markdown, and what they must reach."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.throughput_cost import Cost
from benchmarks.throughput_load import Measured, Users

AIM_RATIO, RATIO_CLIENTS = 0.8, (1, 16, 64)
AIM_P99_RATIO, P99_CLIENTS = 1.5, (64,)
AIM_FAIRNESS = 2.0
AIM_P50_MS, AIM_P99_MS = 30.0, 200.0
HEAD = """\
| model | clients | service | turns/s | p50 ms | p99 ms | fairness | 503s | SQL | commits | WAL bytes | CPU ms | ratio |
|:------|--------:|:--------|--------:|-------:|-------:|---------:|-----:|----:|--------:|----------:|-------:|------:|"""


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
    lines = [HEAD]
    for cell in cells:
        name = f"| {cell.kind} | {cell.clients}"
        lines.append(f"{name} | ours | {_figures(cell.ours)} | {cell.ratio:.2f} |")
        lines.append(f"{name} | bare | {_figures(cell.bare)} | |")
    return "\n".join(lines)


def render_added(users: Users, added: Sequence[Measured]) -> str:
    """Return what both services add to the model's time, as a Markdown table."""
    asked = f"{users.number} users who think for {users.pause_seconds:g} s"
    lines = [
        f"\n{asked}: what a turn takes beyond the model's {users.model_seconds:g} s",
        "",
        "| service | turns/s | p50 ms | p99 ms |",
        "|:--------|--------:|-------:|-------:|",
    ]
    lines += [
        f"| {name} | {one.rate:.1f} | {one.milliseconds(50):.0f} | {one.milliseconds(99):.0f} |"
        for name, one in zip(("ours", "bare"), added, strict=True)
    ]
    return "\n".join(lines)


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


def missed_added(ours: Measured) -> list[str]:
    """Return the aims that our service misses with a slow model, one line each."""
    aims = ((50, AIM_P50_MS), (99, AIM_P99_MS))
    return [
        f"beyond the model's time, p{percent} is {ours.milliseconds(percent):.0f} ms (aim: {aim:g} at most)"
        for percent, aim in aims
        if ours.milliseconds(percent) > aim
    ]


def _figures(side: Side) -> str:
    rate, fairness = side.median(lambda one: one.rate), side.median(lambda one: one.fairness)
    refused = sum(one.refused for one in side.rounds)
    times = f"{side.milliseconds(50):.0f} | {side.milliseconds(99):.0f} | {fairness:.2f} | {refused}"
    cost = f"{side.cost.statements:.1f} | {side.cost.commits:.1f} | {side.cost.wal_bytes:.0f} | {side.cost.cpu_ms:.1f}"
    return f"{rate:.1f} | {times} | {cost}"
