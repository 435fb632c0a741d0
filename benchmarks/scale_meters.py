"""What the processes and the database of `benchmarks.scale_out` use while clients press them."""

import asyncio
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import psutil

from benchmarks.scale_services import Cluster

WORKERS, APIS, POSTGRES, CLIENT = ROLES = ("workers", "APIs", "PostgreSQL", "client")
SAMPLE_SECONDS = 0.2
FLUSH_SECONDS = 10.5
"""A connection that falls idle adds what it counted to PostgreSQL's statistics within ten seconds.

What idle processes do in that time is counted to the turns: a few transactions each second."""

ON_CPU = "on a CPU"
_COUNTED = """
    select d.xact_commit + d.xact_rollback as transactions, w.wal_bytes::float8 as wal_bytes
    from pg_stat_database d, pg_stat_wal w where d.datname = current_database()
"""
_WAITING = """
    select coalesce(a.wait_event_type || ':' || a.wait_event, $1) as event, count(*) as backends
    from pg_stat_activity a
    where a.datname = current_database() and a.backend_type = 'client backend' and a.state <> 'idle'
        and a.pid <> pg_backend_pid()
    group by 1
"""
_QUEUED = "select extract(epoch from now() - min(created_at))::float8 from runs where status = 'queued'"


@dataclass(frozen=True, slots=True)
class Counted:
    """What a database has counted since its statistics began."""

    transactions: int
    wal_bytes: float


async def count(connection: asyncpg.Connection) -> Counted:
    """Return what the database has counted; what open connections did last may be missing for FLUSH_SECONDS."""
    row = await connection.fetchrow(_COUNTED)
    return Counted(int(row["transactions"]), float(row["wal_bytes"]))


@dataclass(slots=True)
class Samples:
    """What was seen of the database now and then: waits of connections that are not idle, ages in seconds."""

    looks: int = 0
    waits: Counter[str] = field(default_factory=Counter)
    queue_ages: list[float] = field(default_factory=list)

    @property
    def busy_backends(self) -> float:
        """How many connections had something to do, on average."""
        return self.waits.total() / max(self.looks, 1)

    def share(self, event: str) -> float:
        """Return which part of the busy connections waited for it."""
        return self.waits[event] / max(self.waits.total(), 1)

    @property
    def queue_median(self) -> float:
        """How long the oldest waiting turn had waited, in the median; 0 where none waited."""
        return statistics.median(self.queue_ages or [0.0])

    @property
    def queue_longest(self) -> float:
        """The longest that was seen."""
        return max(self.queue_ages, default=0.0)


async def sample(connection: asyncpg.Connection, samples: Samples) -> None:
    """Look again and again, until cancelled."""
    while True:
        samples.looks += 1
        for row in await connection.fetch(_WAITING, ON_CPU):
            samples.waits[str(row["event"])] += int(row["backends"])
        samples.queue_ages.append(float(await connection.fetchval(_QUEUED) or 0.0))
        await asyncio.sleep(SAMPLE_SECONDS)


@dataclass(frozen=True, slots=True)
class Cpu:
    """Cores in use: by each process of each role, and by everything on this machine."""

    processes: Mapping[str, Sequence[float]]
    machine: float

    def of(self, role: str) -> float:
        """Return how many cores a role used."""
        return sum(self.processes[role])


class CpuMeter:
    """Reads the processor time of the roles, PostgreSQL's with that of its children, those that ended included."""

    def __init__(self, cluster: Cluster, backend_pid: int) -> None:
        """Take the processes; PostgreSQL's first one is the parent of the backend."""
        postmaster = psutil.Process(backend_pid).parent()
        assert postmaster is not None
        self._postmaster = postmaster
        self._single = {
            WORKERS: [psutil.Process(one.pid) for one in cluster.workers],
            APIS: [psutil.Process(one.pid) for one in cluster.apis],
            CLIENT: [psutil.Process(os.getpid())],
        }

    def read(self) -> dict[str, list[float]]:
        """Return the seconds so far of each process, and of the machine under an empty name."""
        seconds = {role: [_seconds(one) for one in processes] for role, processes in self._single.items()}
        machine = psutil.cpu_times()
        return seconds | {POSTGRES: [self._postgres()], "": [sum(machine) - machine.idle - machine.iowait]}

    def _postgres(self) -> float:
        children = self._postmaster.cpu_times()
        ended = children.children_user + children.children_system
        return _seconds(self._postmaster) + ended + sum(_seconds(child) for child in self._postmaster.children())


def used_between(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], seconds: float) -> Cpu:
    """Return the cores in use between two readings that lie so many seconds apart."""
    cores = {
        role: [(late - early) / seconds for early, late in zip(before[role], after[role], strict=True)]
        for role in before
    }
    return Cpu({role: cores[role] for role in ROLES}, machine=cores[""][0])


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it ended meanwhile: it counts among the children that ended next time
        return 0.0
    return float(times.user + times.system)
