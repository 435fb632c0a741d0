"""The server's log: limited in size, private, with its last lines for error texts.

The server's settings keep statements, values and texts of SQL errors out of it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from throughline.postgres_server.layout import own_as

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
