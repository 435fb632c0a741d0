"""Limits of connections to servers, and the error of a server that is not connected."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a connection; tests set smaller ones.

    - `wait_seconds`: how long new turns wait for an attempt to connect, from the start of the attempt.
    - `connect_seconds`: how long a server may take until it has listed its tools; it may have to be downloaded first.
      Calls of its tools, and turns that are resumed, wait as long.
    - `first_pause_seconds`, `longest_pause_seconds`: the pause after a failure, which doubles with each further one.
    - `relist_seconds`: the shortest time between two lists of tools. `list_seconds`: the
      greatest age of a list before a turn renews it; a server may set less.
    - `close_seconds`: how long a program may take to end by itself.
    - `message_bytes`: the longest message of a server.
    """

    wait_seconds: float = 5.0
    connect_seconds: float = 60.0
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 60.0
    relist_seconds: float = 5.0
    list_seconds: float = 300.0
    close_seconds: float = 2.0
    message_bytes: int = 8_000_000


class NotConnected(Exception):
    """Raised if a server cannot be used now; the text says why, without secrets."""
