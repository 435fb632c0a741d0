"""Where tests keep what never has to outlive them, in memory if there is enough, shared by all processes of a run."""

import atexit
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

import psutil

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system in memory; only folders with random names are made in it
LEAST_FREE_BYTES = 6_000_000_000
"""Far more than a run takes (a server and some copies of its data, under a gigabyte): others use the memory, too."""


@cache
def memory_folder() -> str | None:
    """Return a folder in memory for `tempfile`'s `dir`, or None, its default, where there is too little or none."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    is_enough = min(free, psutil.virtual_memory().available) >= LEAST_FREE_BYTES
    return str(MEMORY) if is_enough and os.access(MEMORY, os.W_OK) else None


T = TypeVar("T")
FOLDER = "THROUGHLINE_TESTS_FOLDER"
CLUSTER = Path("postgres", "cluster")
"""Where an embedded server of this run keeps its data."""

GUARD = """
import os, pathlib, shutil, signal, sys, time
sys.stdin.read()
folder = pathlib.Path(sys.argv[1])
try:
    pid = int((folder / sys.argv[2]).read_text().split()[0])
    if pid > 0:
        os.kill(pid, signal.SIGQUIT)
except (OSError, ValueError, IndexError):
    pass
for _ in range(50):
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        break
    time.sleep(0.1)
"""


@cache
def run_folder() -> Path:
    """Return the folder of this run. The first process makes it, those that it starts find it in their environment."""
    known = os.environ.get(FOLDER)
    if known:
        return Path(known)
    folder = Path(tempfile.mkdtemp(prefix="tl-", dir=memory_folder()))
    folder.chmod(0o711)  # PostgreSQL runs as somebody else where we are root
    os.environ[FOLDER] = str(folder)
    _guard(folder)
    return folder


@contextmanager
def shared(name: str, make: Callable[[], str], end: Callable[[str], None] = lambda _made: None) -> Generator[str]:
    """Yield what the first process of the run that comes here has made; the last that leaves ends it."""
    record = run_folder() / name
    with ExitStack() as stack:
        users = stack.enter_context(record.with_suffix(".users").open("a"))
        with file_lock(record):
            made = _make_or_find(record, users, make)
        stack.callback(_leave, record, users, lambda: end(made))
        yield made


def until_exit(resource: AbstractContextManager[T]) -> T:
    """Enter it, and leave it when this process ends, before the folder of the run is removed."""
    run_folder()  # what is registered later is done first
    stack = ExitStack()
    entered = stack.enter_context(resource)
    atexit.register(stack.close)
    return entered


def _leave(record: Path, users: IO[str], end: Callable[[], None]) -> None:
    with file_lock(record):
        if _is_only_user(users):
            end()
        fcntl.flock(users, fcntl.LOCK_UN)  # before the next comes in and would find itself not alone


def _make_or_find(record: Path, users: IO[str], make: Callable[[], str]) -> str:
    """Make it if nobody uses it, so also what killed processes have left; else read it."""
    if _is_only_user(users):
        record.write_text(make())
    fcntl.flock(users, fcntl.LOCK_SH)
    return record.read_text()


def _is_only_user(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def file_lock(record: Path) -> Generator[None]:
    """Hold the lock of a file of this run's folder."""
    with record.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _guard(folder: Path) -> None:
    """Have another process, which waits for the end of this one, end the server and remove the folder."""
    command = [sys.executable, "-ISc", GUARD, str(folder), str(CLUSTER / "postmaster.pid")]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(guard.communicate)
