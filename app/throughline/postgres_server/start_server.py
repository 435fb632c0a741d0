"""Start of the server process on a cluster, waiting for readiness, and removal of a dead server's leftovers."""

import socket
import threading
import time
from pathlib import Path

import psutil

from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.postgres_server.cluster import write_settings
from throughline.postgres_server.installation import Installation, provide_socket_dir
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
