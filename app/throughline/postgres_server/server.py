"""This process's share of the embedded PostgreSQL server: start it or attach to it, restart it if it dies, release it.

The last process that releases its share stops the server. The service gets the URL to connect to from here.
"""

import asyncio
import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import structlog
from sqlalchemy import URL

from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.postgres_server.cluster import (
    DATABASE,
    ROLE,
    check_version,
    make_cluster_if_missing,
    set_password,
    write_settings,
)
from throughline.postgres_server.installation import (
    Installation,
    prepare_installation,
    provide_socket_dir,
    remove_short_socket_dir,
)
from throughline.postgres_server.layout import (
    EmbeddedConfig,
    Layout,
    choose_data_dir,
    make_home,
    own_as,
    read_or_make_password,
    write_privately,
)
from throughline.postgres_server.process import (
    bound_log,
    end_orphans,
    end_server,
    find_server,
    is_alive,
    open_log,
    read_pid_file,
    read_tail,
    wait_until,
)

_SOCKET_NAME = ".s.PGSQL.5432"
# The eighth line of postmaster.pid, see PM_STATUS_* in PostgreSQL's miscadmin.h and pidfile.h.
_READY = "ready"
_STOPPING = "stopping"
_STOP_SECONDS = 30.0


def find_usable_server(installation: Installation) -> psutil.Process | None:
    """Return the running server, None if there is none.

    A server that is stopping is shut down and waited for; the result is then None.
    """
    cluster = installation.layout.cluster
    process = find_server(cluster)
    noted = read_pid_file(cluster)
    if process and noted and noted.status == _STOPPING:
        end_server(process, timeout_seconds=_STOP_SECONDS)
        return None
    return process


def start_server(installation: Installation) -> psutil.Process:
    """Start the server; the caller holds the start lock, and no other server may be running.

    Does not wait until the server accepts connections.

    Raises:
        DatabaseUnusable: a server of another container uses the same data, or the new server exited at once.
    """
    layout = installation.layout
    socket_dir = provide_socket_dir(installation)
    end_orphans(layout.cluster, mark=layout.mark)
    _refuse_invisible_server(socket_dir / _SOCKET_NAME)
    # A server refuses to start if any process has the recorded pid, even if that pid was reused.
    for leftover in (layout.cluster / "postmaster.pid", *socket_dir.glob(f"{_SOCKET_NAME}*")):
        leftover.unlink(missing_ok=True)
    write_settings(layout.cluster, mark=layout.mark, socket_dir=socket_dir)
    bound_log(layout.log_file)
    arguments = [installation.binaries.postgres, "-D", installation.name_for_server(layout.cluster)]
    with open_log(layout.log_file) as log:
        child = installation.account.spawn(arguments, folder=layout.cluster, log=log)
    # The thread waits for the server's end; otherwise a dead server would remain as a zombie.
    threading.Thread(target=child.wait, name="embedded-postgres-reaper", daemon=True).start()
    try:
        return psutil.Process(child.pid)
    except psutil.NoSuchProcess:
        raise _describe_death(installation) from None


def wait_until_ready(installation: Installation, process: psutil.Process, *, timeout_seconds: float) -> None:
    """Wait until the server accepts connections, which after a crash includes recovery.

    Raises:
        DatabaseUnusable: the server exited; the text contains the last lines of its log.
        DatabaseUnavailable: the timeout passed; the server continues to start, so a retry may succeed.
    """
    cluster = installation.layout.cluster

    def is_decided() -> bool:
        noted = read_pid_file(cluster)
        is_ready = noted is not None and noted.pid == process.pid and noted.status == _READY
        return is_ready or not is_alive(process)

    began = time.monotonic()
    if not wait_until(is_decided, seconds=timeout_seconds):
        raise DatabaseUnavailable(
            f"The embedded PostgreSQL in {cluster} has been starting for {time.monotonic() - began:.0f} s, probably "
            f"recovering from a crash, and goes on: try again. It says: {read_tail(installation.layout.log_file)}"
        )
    if not is_alive(process):
        raise _describe_death(installation)


def stop_server(installation: Installation) -> None:
    """Shut the server down cleanly if it is running."""
    process = find_server(installation.layout.cluster)
    if process:
        end_server(process, timeout_seconds=_STOP_SECONDS)


def _describe_death(installation: Installation) -> DatabaseUnusable:
    layout = installation.layout
    return DatabaseUnusable(
        f"The embedded PostgreSQL in {layout.home} did not start: {read_tail(layout.log_file)} Disk space, memory and "
        f"permissions are the usual reasons; the whole log is {layout.log_file}."
    )


def _refuse_invisible_server(path: Path) -> None:
    """Raise DatabaseUnusable if a server of another container, visible only by its socket, uses the same data.

    Two servers on the same data would destroy it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise DatabaseUnusable(
        f"A server that is not visible from here answers at {path}: another container uses the same data directory. "
        "Stop it, or give each its own with --data-dir or DATA_DIR."
    )


# Two locks order the processes. `start.lock` is held while the server is started or stopped, `users.lock` is shared by
# all processes that use it. A killed process loses its locks and leaves the server running; the next process attaches
# to it.

_POLL_SECONDS = 0.02


class FileLock:
    """A shared or exclusive lock on a file that this object opens itself; child programs do not inherit it."""

    def __init__(self, path: Path) -> None:
        """Open `path`, created with the owner of its folder if missing."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        own_as(path, path.parent)

    def share(self) -> None:
        """Take or change to a shared lock; blocks, so exclusive locks must be short."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Try to take the exclusive lock without waiting. Return False if another holder has a lock, even a shared one.

        After False, the shared lock of this object may be lost.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def exclusively(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file exclusively while the context is open, against other processes and threads of this one.

    Raises:
        DatabaseUnavailable: another holder kept the lock until the timeout.
    """
    lock = FileLock(path)
    deadline = time.monotonic() + timeout_seconds
    try:
        while not lock.try_exclusive():
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"Another process has been starting or stopping the embedded PostgreSQL in {path.parent} for "
                    f"{timeout_seconds:.0f} s: wait for it, or end it and start again."
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        lock.close()


# The default data folder belongs to the installation that used it first: two checkouts or environments of one user
# would share sessions, keys and a schema by accident. A folder that is named with `--data-dir` or DATA_DIR has no
# owner, because who names it wants to share it.


def owning_environment(package: Path, prefix: Path) -> Path:
    """Return the environment `prefix` if `package` is installed in it, otherwise the folder that has the package.

    The environment stays the same if Python or the package is upgraded; a checkout if its environment is created again.
    """
    return prefix if package.is_relative_to(prefix) else package.parent


def running_installation() -> Path:
    """Return the installation that this process runs from."""
    return owning_environment(Path(__file__).resolve().parents[1], Path(sys.prefix).resolve())


def claim_data_dir(layout: Layout, installation: Path) -> None:
    """Record `installation` as the owner of the default data folder if it has none. The caller holds the start lock.

    Raises:
        DatabaseUnusable: another installation owns the folder.
    """
    if not layout.owner_record.exists():
        write_privately(layout.owner_record, f"{installation}\n", model=layout.home)
        return
    owner = layout.owner_record.read_text(encoding="utf-8").strip()
    if owner == str(installation):
        return
    folder = layout.home.parent
    raise DatabaseUnusable(
        f"The default data folder {folder} belongs to the installation in {owner}, and this one is in {installation}. "
        f"Give this one a folder of its own with --data-dir or DATA_DIR. To use the same data on purpose, or after the "
        f"installation was moved, name that folder: DATA_DIR={folder}"
    )


class SharedServer:
    """A share of the server, held from `attach` to `release`. Thread-safe."""

    def __init__(self, config: EmbeddedConfig, layout: Layout, installation: Installation) -> None:
        """Store the dependencies; use `attach` to create a share."""
        self._config = config
        self._layout = layout
        self._installation = installation
        self._users = FileLock(layout.users_lock)
        self._process: psutil.Process | None = None
        self._is_released = False
        self.password = ""
        self.socket_dir = Path()

    @classmethod
    def attach(cls, config: EmbeddedConfig) -> "SharedServer":
        """Take a share of the server, creating and starting it if necessary.

        Raises:
            DatabaseUnusable: the data directory or the programs cannot be used, or the default directory belongs to
                another installation; the text says why.
            DatabaseUnavailable: the server is not ready in time, or another process holds the start lock.
        """
        data_dir = choose_data_dir(config.data_dir)
        try:
            layout = make_home(data_dir)
            with exclusively(layout.start_lock, timeout_seconds=config.start_timeout_seconds):
                if config.data_dir is None:
                    claim_data_dir(layout, running_installation())
                share = cls(config, layout, prepare_installation(layout))
                share._attach_or_close()
                return share
        except OSError as error:
            raise DatabaseUnusable(
                f"The data directory {data_dir} cannot be used: {error.strerror} ({error.filename}). Make it writable, "
                "free disk space, or choose another one with --data-dir or DATA_DIR."
            ) from error

    def revive(self) -> bool:
        """Restart the server if it is dead, and return whether it was. A released share restarts nothing.

        Raises:
            DatabaseUnusable: the server cannot be started any more.
            DatabaseUnavailable: the server is not ready in time, or another process holds the start lock.
        """
        if self._process and is_alive(self._process):
            bound_log(self._layout.log_file)
            return False
        with exclusively(self._layout.start_lock, timeout_seconds=self._config.start_timeout_seconds):
            if self._is_released:
                return False
            self._ensure_running()
        return True

    def release(self) -> None:
        """Release this process's share; the last process stops the server."""
        if self._is_released:
            return
        # Longer than a stop, and longer than another process's start.
        with exclusively(self._layout.start_lock, timeout_seconds=self._config.start_timeout_seconds + 60):
            self._is_released = True
            try:
                if self._users.try_exclusive():
                    stop_server(self._installation)
                    remove_short_socket_dir(self._layout)
            finally:
                self._users.close()

    def _attach_or_close(self) -> None:
        try:
            self._users.share()
            self._prepare_data()
            self._ensure_running()
        except BaseException:
            self._users.close()
            raise

    def _prepare_data(self) -> None:
        has_password = self._layout.password_file.exists()
        has_cluster = self._layout.cluster.exists()
        self.password = read_or_make_password(self._layout)
        make_cluster_if_missing(
            self._installation, password=self.password, may_create_databases=self._config.may_create_databases
        )
        check_version(self._installation)
        if has_cluster and not has_password:
            stop_server(self._installation)
            set_password(self._installation, self.password)

    def _ensure_running(self) -> None:
        self.socket_dir = provide_socket_dir(self._installation)
        process = find_usable_server(self._installation)
        if process is None:
            process = start_server(self._installation)
            _log.info("embedded postgresql started", folder=str(self._layout.home), pid=process.pid)
        wait_until_ready(self._installation, process, timeout_seconds=self._config.start_timeout_seconds)
        self._process = process


_WATCH_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0
_log = structlog.get_logger()


class EmbeddedServer:
    """A process's share of the PostgreSQL server that all processes of one data directory use."""

    def __init__(self, share: SharedServer) -> None:
        """Wrap a share; use `start` to create one."""
        self._share = share

    @classmethod
    async def start(cls, config: EmbeddedConfig) -> "EmbeddedServer":
        """Attach to the running server, or start it, creating its data if missing; return when it accepts connections.

        If cancelled, releases the share first.

        Raises:
            DatabaseUnusable: the data directory or the programs cannot be used; the text says why and what to do.
            DatabaseUnavailable: not ready in time (crash recovery goes on), or another process holds the start lock.
        """
        attaching = asyncio.create_task(asyncio.to_thread(SharedServer.attach, config))
        try:
            return cls(await asyncio.shield(attaching))
        except asyncio.CancelledError:
            await asyncio.wait([attaching])
            if attaching.exception() is None:
                await asyncio.to_thread(attaching.result().release)
            raise

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database for the service's role, by the Unix socket; contains the password."""
        return URL.create(
            "postgresql+asyncpg",
            username=ROLE,
            password=self._share.password,
            database=DATABASE,
            query={"host": str(self._share.socket_dir), "port": "5432"},
        ).render_as_string(hide_password=False)

    async def watch(self) -> None:
        """Restart the server whenever it is found dead; runs until cancelled.

        A failed restart is logged and tried again after a growing pause.
        """
        pause_seconds = _WATCH_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            try:
                if await asyncio.to_thread(self._share.revive):
                    _log.warning("embedded postgresql restarted after its death")
                pause_seconds = _WATCH_SECONDS
            except (DatabaseUnusable, DatabaseUnavailable, OSError) as error:
                _log.error("embedded postgresql restart failed, retried later", detail=str(error))
                pause_seconds = min(pause_seconds * 2, _MAX_PAUSE_SECONDS)

    async def stop(self) -> None:
        """Release the share; the last process stops the server. Cancel `watch` first."""
        await asyncio.to_thread(self._share.release)
