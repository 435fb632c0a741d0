"""`throughline serve` with several processes: how many there are, their supervisor, and what a child process joins.

The supervisor upgrades the schema and starts the embedded PostgreSQL, once for all. It loads no agents and no models.
"""

import asyncio
import math
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvloop

from throughline.assembly.database import database_config, database_location, may_migrate
from throughline.assembly.env_file import read_program_settings
from throughline.cli.dependencies import ChildOptions, ServeOptions
from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.migrations import upgrade
from throughline.db.connection.replica import REPLICA_FAILURES, REPLICA_POOL_SIZE, replica_address
from throughline.db.database import ConnectionLimit, open_address, read_connection_limit
from throughline.domain.errors import SettingInvalid, ThroughlineError
from throughline.domain.service_status import AUTO_PROCESSES, ProcessKind
from throughline.execution.error_boundary import ErrorBoundary
from throughline.http.accept import ConnectionCounts
from throughline.http.server import TcpAddress, bind_tcp
from throughline.http.services import Readiness
from throughline.logs import set_up_logging
from throughline.metric_files import MULTIPROCESS_FOLDER, MetricFiles, held, open_folder
from throughline.settings import Settings, read_environment, read_variable
from throughline.stopping import Stopping, command_ignoring_hangup
from throughline.supervisor.child_process import ChildProgram
from throughline.supervisor.line import ChildCount, SupervisorLine, inherit_socket, open_line
from throughline.supervisor.supervisor import Supervisor, SupervisorConfig

REPLICA_SECONDS = 5.0
"""Seconds that the start waits for the replica, which it does not need."""

END_SECONDS = 30.0
"""Seconds that a child may take to end beyond the grace period of its turns."""

log = structlog.get_logger(__name__)

# How many processes.


def serve_in_processes(options: ServeOptions) -> bool:
    """Serve with several processes until stopped, if so many are wanted; return False at once if one is."""
    settings = read_program_settings(options.data_dir)
    count = _wanted(options, settings)
    if options.child is not None or count == 1:
        return False
    set_up_logging(settings.log_level, settings.log_format)
    code = 0
    with suppress(asyncio.CancelledError):
        code = uvloop.run(_supervise(options, settings, count))
    if code:
        sys.exit(code)
    return True


def _wanted(options: ServeOptions, settings: Settings) -> int:
    written = options.processes or settings.processes
    return usable_cores() if written == AUTO_PROCESSES else int(written)


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: of its affinity, and of its control group's CPU limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _cpu_limits(root / "sys/fs/cgroup"))]))


def _cpu_limits(cgroup: Path) -> Iterator[float]:
    """Yield the CPU limit of a container, in cores, as version 2 of control groups has it, or version 1."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (cgroup / "cpu.max").read_text("ascii").split()
        yield int(quota) / int(period)  # a quota that is `max` is no number
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text("ascii") for name in ("quota", "period"))
        if int(quota) > 0:
            yield int(quota) / int(period)


async def allowed_processes(settings: Settings, urls: DatabaseUrls, count: int, *, is_auto: bool) -> int:
    """Return how many processes the server's connections allow. Raises SettingInvalid if `count` are too many.

    With `is_auto` as many as are allowed are returned. One more process runs while processes are replaced.
    """
    each = database_config(settings).at(urls).server_connections
    if not each:  # all go through a pooler, which lets them share its own
        return count
    limit = await read_connection_limit(urls.session_address())
    if is_auto:
        most = auto_processes(limit.free, each)
        if count > most:
            log.warning(
                "fewer processes than cores, for lack of connections",
                processes=most,
                cores=count,
                free=limit.free,
                hint=few_processes_hint(limit, each, count),
            )
        return min(count, most)
    if count <= limit.allowed // each - 1:
        return count
    raise SettingInvalid(
        f"PROCESSES: {count} processes, and one more while they are replaced, need {(count + 1) * each} connections "
        f"({each} each), and PostgreSQL allows {limit.allowed}. Raise its max_connections, or the limit of the role or "
        "database; lower PROCESSES or DB_POOL_SIZE; or put PgBouncer in between."
    )


async def check_replica_connections(url: str, count: int) -> None:
    """Log a warning if the replica allows fewer connections than the processes may open, or cannot be reached.

    It is no error: the primary answers what finds no connection. One more process runs while processes are replaced.
    """
    address = replica_address(url)
    needed = (count + 1) * REPLICA_POOL_SIZE
    try:
        async with asyncio.timeout(REPLICA_SECONDS):
            allowed = (await read_connection_limit(address)).allowed
    except (ThroughlineError, *REPLICA_FAILURES) as error:
        log.warning("replica not reached", place=address.place, error=type(error).__name__)
        return
    if needed > allowed:
        log.warning("replica allows too few connections", place=address.place, needed=needed, allowed=allowed)


def auto_processes(free: int, each: int) -> int:
    """Return the most processes of `auto`, with `each` connections, that leave a quarter of the free ones to others.

    Other programs are workers, Slack, the command line and backups. One process is started in any case.
    """
    return max(1, free * 3 // 4 // each - 1)


def few_processes_hint(limit: ConnectionLimit, each: int, cores: int) -> str:
    """Return what an operator can do if `auto` starts fewer processes than there are `cores`.

    Nobody can tell whether the service's other processes stay or are of a deployment that is being replaced.
    """
    remedy = "Raise PostgreSQL's max_connections, lower DB_POOL_SIZE, or put PgBouncer in between."
    alone = min(cores, auto_processes(limit.free + limit.own, each))
    if alone <= auto_processes(limit.free, each):
        return remedy
    return (
        f"{limit.own} connections are in use by other processes of Throughline. If these are about to stop, because "
        f"this deployment replaces theirs, set PROCESSES={alone}: the number stays as it is until the next start. "
        f"If they stay: {remedy}"
    )


# The supervisor.


def serve_address(options: ServeOptions, settings: Settings) -> TcpAddress:
    """Return the host and port of the command line, or else those of the settings."""
    return TcpAddress(options.host or settings.host, settings.port if options.port is None else options.port)


async def _supervise(options: ServeOptions, settings: Settings, count: int) -> int:
    stopping, replacing = Stopping(), asyncio.Event()
    _replace_on_hangup(replacing, stopping)
    async with open_address(database_location(settings)) as urls:
        if may_migrate(settings, ProcessKind.SERVE):
            await upgrade(urls.for_sessions)
        is_auto = (options.processes or settings.processes) == AUTO_PROCESSES
        count = await allowed_processes(settings, urls, count, is_auto=is_auto)
        if settings.database_read_url:
            await check_replica_connections(settings.database_read_url, count)
        with (
            bind_tcp(serve_address(options, settings)) as listener,
            open_folder() as folder,
            ConnectionCounts.make_file() as counts,
        ):
            config = SupervisorConfig(count, end=settings.shutdown_grace_seconds + END_SECONDS)
            program = _child_program(options, count, folder, counts.fileno())
            on_end = end_callback(MetricFiles(folder), ConnectionCounts(counts.fileno()))
            supervisor = Supervisor(program, listener, config, replacing, on_end)
            return await supervisor.run(stopping.asked, stopping.started)


def end_callback(files: MetricFiles, counts: ConnectionCounts) -> Callable[[int], None]:
    """Return what is to be called with the id of each ended process. A damaged file of metrics is only logged."""

    def on_end(pid: int) -> None:
        counts.forget(pid)
        with ErrorBoundary(log.error, "metrics of an ended process not merged"):
            files.note_end(pid)

    return on_end


def _child_program(options: ServeOptions, count: int, folder: Path, counts: int) -> ChildProgram:
    given = [*_given("--host", options.host), *_given("--data-dir", options.data_dir)]
    flags = ["--no-worker"] if options.no_worker else []

    def command(listener: int, line: int, number: int) -> list[str]:
        folder.mkdir(exist_ok=True)  # somebody may have removed it, and no child starts without it
        child = ["--child", f"{listener}:{line}:{counts}:{number}:{count}"]
        return command_ignoring_hangup([sys.executable, "-P", "-m", "throughline", "serve", *given, *flags, *child])

    return ChildProgram(command, {**read_environment(), MULTIPROCESS_FOLDER: str(folder)}, (counts,))


def _given(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _replace_on_hangup(replacing: asyncio.Event, stopping: Stopping) -> None:
    """Let SIGHUP replace the children; it stops the service if it comes from a terminal that was closed.

    A service that was started so that it outlives its terminal (`nohup`) goes on.
    """
    had_terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def on_hangup() -> None:
        if had_terminal and not _has_terminal():
            stopping.stop()
        else:
            replacing.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)


def _has_terminal() -> bool:
    """Whether the process has a terminal that can close, wherever its output goes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


# A child process.


@dataclass(frozen=True, slots=True)
class Membership:
    """What a child process gets from its supervisor: the listening socket, the connections of all, and the line."""

    listener: socket.socket
    counts: ConnectionCounts
    line: SupervisorLine
    number: int

    def added_to(self, ready: Readiness) -> Readiness:
        """Return the readiness with a hint whether all processes serve."""
        count = self.line.count
        trouble = f"{count.serving} of {count.wanted} processes serve"
        return ready.with_hint("processes", None if count.serving == count.wanted else trouble)


@asynccontextmanager
async def joined(
    child: ChildOptions | None, stopping: Stopping, before_alive: Callable[[], None]
) -> AsyncGenerator[Membership | None]:
    """Yield what a child process gets from its supervisor, None in a process without one.

    The process stops if the supervisor ends. `before_alive` is called every few seconds.
    """
    if child is None:
        yield None
        return
    count = ChildCount(serving=child.children, wanted=child.children)
    folder = read_variable(MULTIPROCESS_FOLDER)
    async with open_line(child.line, count, on_end=stopping.stop, before_alive=before_alive) as line:
        counts = ConnectionCounts(child.counts, child.number)
        os.close(child.counts)
        with held(folder):
            yield Membership(inherit_socket(child.listener), counts, line, child.number)
