"""File locks between the processes that share a data directory; the kernel drops them when a process dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from throughline.domain.errors import DatabaseUnavailable
from throughline.postgres_server.layout import own_as

_POLL_SECONDS = 0.02


class FileLock:
    """One lock file, opened anew for each holder; never handed on to child programs."""

    def __init__(self, path: Path) -> None:
        """Open `path`, making it with the owner of its folder."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        own_as(path, path.parent)

    def share(self) -> None:
        """Take or change to a shared hold; callers see to it that nobody holds it exclusively for long."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take the lock alone; False if anybody else holds it, and then our own hold may be gone too."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let go; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def exclusively(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file alone, against other processes and against other threads of this one.

    Raises:
        DatabaseUnavailable: somebody else kept it for the whole time.
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
