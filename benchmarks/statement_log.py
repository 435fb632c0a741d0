"""Counts the SQL statements and transactions of a service by the log of a PostgreSQL started for it.

The embedded PostgreSQL has no pg_stat_statements, and pg_stat_database learns of an idle connection's transactions ten
seconds late. So each statement is written to a log while a pass is counted, and to none while turns are timed.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import run_postgres

LINE = re.compile(rb"^(\d+) LOG:  (?:statement|execute [^:]*): *(\w*)(?: +(\w+))?")
LOG_FILE = "statements.log"
SETTINGS = f"""\
logging_collector = on
log_directory = 'log'
log_filename = '{LOG_FILE}'
log_rotation_age = 0
log_rotation_size = 0
log_line_prefix = '%p '
log_statement = {{log_statement}}
"""
SETTLE_SECONDS = 0.5
"""All connections have taken up a changed setting by then, and the log has all that was said before."""


@dataclass(slots=True)
class Logged:
    """What clients executed in so many seconds: known once they are over."""

    seconds: float = 0.0
    statements: int = 0
    transactions: int = 0


def count_statements(log: bytes, *, ignored_pid: int = 0) -> tuple[int, int]:
    """Return the statements and transactions in a log; those of `ignored_pid`, who measures, do not count.

    A statement is what a client has executed, BEGIN and COMMIT too. A transaction is one that was committed, or a
    statement outside of one. As in pg_stat_database, it need not have written anything; unlike there, hearing a
    notification is none.
    """
    found = [match for match in map(LINE.match, log.split(b"\n")) if match and int(match[1]) != ignored_pid]
    begun: set[bytes] = set()
    transactions = 0
    for pid, verb, second in (match.groups() for match in found):
        match verb.upper():
            case b"BEGIN" | b"START":
                begun.add(pid)
            case b"ROLLBACK" | b"ABORT" if (second or b"").upper() != b"TO":
                begun.discard(pid)
            case b"COMMIT" | b"END":
                transactions += 1
                begun.discard(pid)
            case _:
                transactions += pid not in begun
    return len(found), transactions


class StatementLog:
    """The log of a running server."""

    def __init__(self, cluster: Path, settings: str = "") -> None:
        """Take PostgreSQL's data directory, and further settings of the server."""
        self._cluster, self._settings = cluster, settings

    @asynccontextmanager
    async def on(self, *, ignored_pid: int = 0) -> AsyncGenerator[Logged]:
        """Have statements written to the log in the block, by every connection, and count them at its end."""
        logged, file = Logged(), self._cluster / "log" / LOG_FILE
        await self._write(is_on=True)
        before, began = file.stat().st_size, time.monotonic()
        yield logged
        await asyncio.sleep(SETTLE_SECONDS)
        logged.seconds = time.monotonic() - began
        log = file.read_bytes()[before:]
        await self._write(is_on=False)
        logged.statements, logged.transactions = count_statements(log, ignored_pid=ignored_pid)

    async def _write(self, *, is_on: bool) -> None:
        write_settings(self._cluster, is_on=is_on, settings=self._settings)
        postmaster = int((self._cluster / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGHUP)
        await asyncio.sleep(SETTLE_SECONDS)


def write_settings(cluster: Path, *, is_on: bool, settings: str = "") -> None:
    """Write the log's settings, and further ones, where the server reads them last; it has to start, or to be told."""
    of_log = SETTINGS.format(log_statement="all" if is_on else "none")
    (cluster / "postgresql.auto.conf").write_text(f"{of_log}{settings}")


@asynccontextmanager
async def run_logged_postgres(folder: Path, settings: str = "") -> AsyncGenerator[tuple[str, StatementLog]]:
    """Yield the server's address as the setting DATABASE_URL takes it, and its log, which is off.

    `settings` are further settings of the server, a line for each.
    """
    async with run_postgres(folder, may_create_databases=True):
        pass  # who writes the log is decided at the start
    cluster = folder / "postgres" / "postgres" / "cluster"
    write_settings(cluster, is_on=False, settings=settings)
    async with run_postgres(folder) as url:
        yield url, StatementLog(cluster, settings)
