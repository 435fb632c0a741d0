"""File locks between processes that share a data directory; the kernel releases them when a process dies."""

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
