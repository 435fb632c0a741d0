"""Processes that have a replica, and how their reads were answered."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fakes.pooler import urls_of
from throughline.db.connection.replica import ReplicaConfig
from throughline.db.database import Database, DatabaseConfig
from throughline.db.reads import Reading


@dataclass
class ReplicaProcess:
    """A process with a replica, and how its reads were answered."""

    database: Database
    reads: Counter[str] = field(default_factory=Counter)

    def begin(self) -> Reading:
        """Begin the reads of an answer."""
        return self.database.reads.begin()


@asynccontextmanager
async def opened(database_url: str, read_url: str, *, max_lag_seconds: float = 30.0) -> AsyncGenerator[ReplicaProcess]:
    """Open a process whose replica is at `read_url`."""
    replica = ReplicaConfig(read_url, max_lag_seconds)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=5, replica=replica))
    process = ReplicaProcess(database)
    database.reads.on_read(lambda outcome: process.reads.update([outcome]))
    try:
        yield process
    finally:
        await database.close()
