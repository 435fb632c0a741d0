"""Figures that several benchmarks take: percentiles, the CPU and memory of a process, the WAL of a server; tables."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil

from throughline.db.connection.address import parse_address


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the headings first, as a Markdown table."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rendered = [" | ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (rendered[0], rule, *rendered[1:]))


def percentile(values: Sequence[float], percent: int) -> float:
    """Return what this percentage of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, which a busy machine does not change."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has held so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def held_mb(pid: int) -> float:
    """Return the memory that a process holds now."""
    return float(psutil.Process(pid).memory_info().rss) / 1024**2


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection]:
    """Yield a connection to a server, past the service."""
    connection = await asyncpg.connect(**parse_address(url).arguments())
    try:
        yield connection
    finally:
        await connection.close()


async def wal_position(connection: asyncpg.Connection) -> int:
    """Return how many bytes of WAL the server has written so far."""
    return int(await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
