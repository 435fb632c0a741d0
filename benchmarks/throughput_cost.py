"""What turns cost beside their time: SQL statements, transactions, WAL and the CPU of the service's process."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from benchmarks.figures import cpu_seconds, wal_position
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
