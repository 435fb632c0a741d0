"""Identification, liveness and termination of the server process.

A pid alone proves nothing, because pids are reused. The process must be named postgres and work in the cluster's
folder. If its folder is unreadable, its start time must match `postmaster.pid`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from throughline.postgres_server.layout import own_as

# The server's log: limited in size, private, with its last lines for error texts.
#
# The server's settings keep statements, values and texts of SQL errors out of it.

MAX_BYTES = 1_000_000
_TAIL_BYTES = 4_000
_TAIL_LINES = 5


@contextmanager
def open_log(path: Path) -> Iterator[IO[bytes]]:
    """Open the log for a new server in append mode, so that it can be emptied while the server writes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "ab", buffering=0) as log:
        own_as(path, path.parent)
        yield log


def bound_log(path: Path) -> None:
    """Empty the log if it is larger than MAX_BYTES."""
    if path.exists() and path.stat().st_size > MAX_BYTES:
        os.truncate(path, 0)


def read_tail(path: Path) -> str:
    """Return the log's last lines as one line, '' if there is no log."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return shorten(log.read().decode("utf-8", errors="replace"))


def shorten(output: str) -> str:
    """Return the last lines of a program's output as one line that ends with a full stop."""
    lines = [line.strip() for line in output.splitlines() if line.strip()][-_TAIL_LINES:]
    return " / ".join(lines or ["it said nothing"]).rstrip(".") + "."


_NAME = "postgres"
_PROGRAMS = frozenset({_NAME, "initdb"})
_START_TOLERANCE_SECONDS = 5.0
_POLL_SECONDS = 0.02
_KILL_ROUNDS = 3
_PID_FILE_LINES = 8


@dataclass(frozen=True, slots=True)
class PidFile:
    """The content of `postmaster.pid`; `status` is '' if the server has not written it yet."""

    pid: int
    started_at_seconds: float
    status: str


def read_pid_file(cluster: Path) -> PidFile | None:
    """Return the content of `postmaster.pid`, None if it is missing or incomplete."""
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        status = lines[_PID_FILE_LINES - 1].strip() if len(lines) >= _PID_FILE_LINES else ""
        # A single-user server writes its pid negative.
        return PidFile(pid=abs(int(lines[0])), started_at_seconds=float(lines[2]), status=status)
    except (FileNotFoundError, IndexError, ValueError):
        return None


def find_server(cluster: Path) -> psutil.Process | None:
    """Return the cluster's running server process, None if there is none."""
    noted = read_pid_file(cluster)
    if noted is None or noted.pid == 0:
        return None
    try:
        process = psutil.Process(noted.pid)
        return process if _is_server(process, cluster, noted) else None
    except psutil.NoSuchProcess:
        return None


def is_alive(process: psutil.Process) -> bool:
    """Return whether this very process still runs; a zombie does not count."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_server(process: psutil.Process, *, timeout_seconds: float) -> None:
    """Shut the server down: fast first, then immediate, finally by SIGKILL."""
    # Signals: see "Shutting Down the Server" in PostgreSQL's manual. SIGINT is fast, SIGQUIT is immediate.
    for signal_number, seconds in ((signal.SIGINT, timeout_seconds), (signal.SIGQUIT, 5.0)):
        if _signal_and_wait(process, signal_number, seconds):
            return
    _signal_and_wait(process, signal.SIGKILL, 5.0)


def end_orphans(folder: Path, *, mark: str) -> None:
    """Kill processes that a dead server left in `folder`: they would keep shared memory and block a restart.

    They usually end by themselves, unless they are busy. An interrupted start leaves an initdb, which starts further
    programs until it is gone. If working folders are unreadable (root in a container), `mark` in a process's title
    identifies them.
    """
    if wait_until(lambda: not _find_working_in(folder, mark), seconds=2.0):
        return
    for _ in range(_KILL_ROUNDS):
        for process in _find_working_in(folder, mark):
            _signal_and_wait(process, signal.SIGKILL, 5.0)


def wait_until(is_so: Callable[[], bool], *, seconds: float) -> bool:
    """Poll until `is_so` returns True; return False after the timeout."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _is_server(process: psutil.Process, cluster: Path, noted: PidFile) -> bool:
    if not is_alive(process) or process.name() != _NAME:
        return False
    folder = _working_folder(process)
    if folder:
        return folder == os.path.realpath(cluster)
    return abs(process.create_time() - noted.started_at_seconds) <= _START_TOLERANCE_SECONDS


def _working_folder(process: psutil.Process) -> str:
    """Return the process's working folder, '' if it is unreadable. Unlike start times, it survives clock changes."""
    try:
        return process.cwd()
    except psutil.AccessDenied:
        return ""


def _find_working_in(folder: Path, mark: str) -> list[psutil.Process]:
    place = os.path.realpath(folder)
    return [process for process in psutil.process_iter() if _works_in(process, place, mark)]


def _works_in(process: psutil.Process, place: str, mark: str) -> bool:
    try:
        if process.name() not in _PROGRAMS or not is_alive(process):
            return False
        found = _working_folder(process)
        return found == place if found else mark in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _signal_and_wait(process: psutil.Process, signal_number: int, seconds: float) -> bool:
    try:
        process.send_signal(signal_number)
    except psutil.NoSuchProcess:
        return True
    return wait_until(lambda: not is_alive(process), seconds=seconds)
