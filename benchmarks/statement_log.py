"""Counts the SQL statements and transactions of a service by the log of a PostgreSQL started for it.

The embedded PostgreSQL has no pg_stat_statements, and pg_stat_database learns of an idle connection's transactions ten
seconds late. So each statement is written to a log while a pass is counted, and to none while turns are timed.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
class StatementCounter:
    """Counts statements and transactions in a log; those of `ignored_pid`, who measures, do not count.

    A statement is what a client has executed, BEGIN and COMMIT too. A transaction is one that was committed, or a
    statement outside of one. As in pg_stat_database, it need not have written anything; unlike there, hearing a
    notification is none.
    """

    ignored_pid: int = 0
    statements: int = 0
    transactions: int = 0
    _open: set[int] = field(default_factory=set)
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """Read on in the log; a line that is not whole yet is kept for the next time."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            found = LINE.match(line)
            if found and int(found[1]) != self.ignored_pid:
                self._add(int(found[1]), found[2].upper(), (found[3] or b"").upper())

    def _add(self, pid: int, verb: bytes, second: bytes) -> None:
        self.statements += 1
        if verb in {b"BEGIN", b"START"}:
            self._open.add(pid)
        elif verb in {b"ROLLBACK", b"ABORT"} and second != b"TO":
            self._open.discard(pid)
        elif verb in {b"COMMIT", b"END"}:
            self.transactions += 1
            self._open.discard(pid)
        elif pid not in self._open:
            self.transactions += 1


class StatementLog:
    """The log of a running server."""

    def __init__(self, cluster: Path) -> None:
        """Take PostgreSQL's data directory."""
        self._cluster = cluster
        self._offset = 0
        self.counter = StatementCounter()

    @asynccontextmanager
    async def on(self) -> AsyncGenerator[None]:
        """Have statements written to the log in the block, by every connection."""
        await self._write(is_on=True)
        yield
        await self._write(is_on=False)

    async def _write(self, *, is_on: bool) -> None:
        write_settings(self._cluster, is_on=is_on)
        postmaster = int((self._cluster / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGHUP)
        await asyncio.sleep(SETTLE_SECONDS)

    async def read(self) -> tuple[int, int]:
        """Return the statements and transactions so far."""
        await asyncio.sleep(SETTLE_SECONDS)
        with (self._cluster / "log" / LOG_FILE).open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        self._offset += len(data)
        self.counter.feed(data)
        return self.counter.statements, self.counter.transactions


def write_settings(cluster: Path, *, is_on: bool) -> None:
    """Write the log's settings where the server reads them last; it has to start, or to be told."""
    settings = SETTINGS.format(log_statement="all" if is_on else "none")
    (cluster / "postgresql.auto.conf").write_text(settings)


@asynccontextmanager
async def run_logged_postgres(folder: Path) -> AsyncGenerator[tuple[str, StatementLog]]:
    """Yield the server's address as the setting DATABASE_URL takes it, and its log, which is off."""
    async with run_postgres(folder):
        pass  # who writes the log is decided at the start
    cluster = folder / "postgres" / "postgres" / "cluster"
    write_settings(cluster, is_on=False)
    async with run_postgres(folder) as url:
        yield url, StatementLog(cluster)
