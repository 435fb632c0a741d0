"""The figures of `benchmarks.scale_out` as Markdown, and which role has no more to give."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scale_meters import APIS, CLIENT, ROLES, WORKERS, Counted, Cpu, Samples
from benchmarks.throughput_load import Measured

FULL = 0.9
"""Which part of a core, or of all of them, counts as all of it."""

MOST_OTHERS = 0.2
"""Which part of the processor time other programs may take before a full machine says nothing about the service."""

SINGLE_CORE = (WORKERS, APIS, CLIENT)
"""A process of these runs Python on one core at a time; PostgreSQL has a process for each connection."""

WAITS_SHOWN = 4
HEAD = """\
| workers | owners | turns/s | p50 ms | p99 ms | 503s | slowest/median | least-most turns | Jain | {roles} | machine \
| tx/turn | WAL B/turn | queue s | longest |
|--------:|-------:|--------:|-------:|-------:|-----:|---------------:|-----------------:|-----:|{lines}|--------:\
|--------:|-----------:|--------:|--------:|"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: how many of each, what the clients saw, and what it took."""

    workers: int
    owners: int
    model_seconds: float
    cores: int
    measured: Measured
    cpu: Cpu
    used: Counted
    samples: Samples

    @property
    def turns_of_sessions(self) -> list[int]:
        """How many turns each session got."""
        return [len(session) for session in self.measured.sessions]


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 where all shares are equal, 1/n where one has everything.

    R. Jain, D. Chiu, W. Hawe: A quantitative measure of fairness and discrimination, DEC-TR-301, 1984.
    """
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def saturated(cell: Cell) -> str:
    """Return in words what keeps the cell from more turns per second."""
    if cell.cpu.machine >= FULL * cell.cores:
        return _full_machine(cell)
    for role in SINGLE_CORE:
        fullest = max(cell.cpu.processes[role])
        if fullest >= FULL:
            return f"{role}: one process uses {fullest:.2f} of the one core it can use"
    model_share = cell.model_seconds / statistics.fmean(cell.measured.turns)
    if model_share >= FULL:
        return f"nothing: {model_share:.0%} of a turn's time is the model's"
    return f"no processor: {1 - model_share:.0%} of a turn's time is spent waiting, see the waits"


def _full_machine(cell: Cell) -> str:
    busiest = max(ROLES, key=cell.cpu.of)
    others = max(cell.cpu.machine - sum(cell.cpu.of(role) for role in ROLES), 0.0) / cell.cpu.machine
    shares = ", ".join(f"{role} {cell.cpu.of(role) / cell.cpu.machine:.0%}" for role in ROLES)
    told = f"{cell.cpu.machine:.2f} of {cell.cores} cores: {shares}, others {others:.0%}"
    if others > MOST_OTHERS:
        return f"not known, for other programs kept the machine busy ({told})"
    return f"the machine ({told}), {busiest} most"


def render(cells: Sequence[Cell]) -> str:
    """Return the table, and for each cell what is saturated and what connections waited for."""
    head = HEAD.format(roles=" | ".join(f"{role} cores" for role in ROLES), lines="|".join("---:" for _ in ROLES))
    lines = [head, *(_row(cell) for cell in cells), ""]
    for cell in cells:
        name = f"{cell.workers} workers, {cell.owners} owners"
        waits = ", ".join(
            f"{event} {cell.samples.share(event):.0%}" for event, _ in cell.samples.waits.most_common(WAITS_SHOWN)
        )
        lines.append(f"- {name}: saturated is {saturated(cell)}.")
        lines.append(f"  {cell.samples.busy_backends:.1f} connections not idle on average: {waits or 'none'}.")
    return "\n".join(lines)


def _row(cell: Cell) -> str:
    measured, turns = cell.measured, cell.turns_of_sessions
    figures = (
        f"{cell.workers}",
        f"{cell.owners}",
        f"{measured.rate:.1f}",
        f"{measured.milliseconds(50):.0f}",
        f"{measured.milliseconds(99):.0f}",
        f"{measured.refused}",
        f"{measured.fairness:.2f}",
        f"{min(turns)}-{max(turns)}",
        f"{jain(turns):.3f}",
        *(f"{cell.cpu.of(role):.2f}" for role in ROLES),
        f"{cell.cpu.machine:.2f}",
        f"{cell.used.transactions / sum(turns):.1f}",
        f"{cell.used.wal_bytes / sum(turns):.0f}",
        f"{cell.samples.queue_median:.2f}",
        f"{cell.samples.queue_longest:.2f}",
    )
    return f"| {' | '.join(figures)} |"
