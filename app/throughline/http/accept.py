"""Accepting connections so that processes which share a listening socket have equally many.

The system hands a new connection to the process that asks first: of several busy ones, the one that wakes up takes all
that wait, and turns run where their connections are. So each process shows the others how many it has, and leaves new
connections for a moment to one that has fewer.
"""

import asyncio
import mmap
import os
import socket
import tempfile
import time
from collections.abc import Callable, Collection
from typing import BinaryIO

import structlog

MOST_PROCESSES = 512
"""Places for processes: 256 serve at most (PROCESSES), and each may be ending while another one replaces it."""

_CELLS = 3
_FILE_BYTES = MOST_PROCESSES * _CELLS * 8
AWAY_SECONDS = 0.5
"""A process that has shown nothing for so long is stopped or very busy: nothing is left to it."""

LOOKS, LOOK_SECONDS = 10, 0.002
"""So often, and so far apart, a process looks whether another one with fewer connections takes those that wait."""

MOST_AT_ONCE = 8
"""Connections that are accepted together after the others have not taken them."""

START_SECONDS = 5.0
"""Longest time until an accepted connection has begun: with uvloop one whose protocol fails then never does."""

PAUSE_SECONDS = 1.0
"""Pause after the system had no room for another connection, for example no file descriptor."""

log = structlog.get_logger(__name__)


class ConnectionCounts:
    """How many connections each process has that shares a socket, in a file that all of them have in memory.

    Each process writes only to its own place: its process id (0: the place is free), its number of connections, and
    when it wrote them, by the clock of the machine that runs since its start.
    """

    def __init__(self, descriptor: int, first_place: int = 0) -> None:
        """Map the file with this descriptor, which `make_file` has made. The place is the first free one from a number.

        Raises OSError, or ValueError if the descriptor is that of another file: nothing may be written there.
        """
        if os.fstat(descriptor).st_size != _FILE_BYTES:
            raise ValueError(f"File descriptor {descriptor} is not that of the connections' counts.")
        self._cells = memoryview(mmap.mmap(descriptor, _FILE_BYTES)).cast("d")
        places = [_CELLS * ((first_place + step) % MOST_PROCESSES) for step in range(MOST_PROCESSES)]
        self._own = next((place for place in places if not self._cells[place]), places[0])

    @staticmethod
    def make_file() -> BinaryIO:
        """Return an open file without a name, in which nobody has connections. Raises OSError if the disk is full."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        file.write(bytes(_FILE_BYTES))  # a file with a hole would end the processes by a signal once the disk is full
        file.flush()
        return file

    def show(self, count: int) -> None:
        """Show the number of this process's connections to all."""
        self._cells[self._own + 1], self._cells[self._own + 2] = count, time.monotonic()
        self._cells[self._own] = os.getpid()

    def has_most_room(self) -> bool:
        """Return whether no other process that is not away shows fewer connections than this one."""
        cells, oldest = self._cells.tolist(), time.monotonic() - AWAY_SECONDS
        others = zip(cells[::_CELLS], cells[1::_CELLS], cells[2::_CELLS], strict=True)
        return all(cells[self._own + 1] <= count for pid, count, shown_at in others if pid and shown_at > oldest)

    def forget(self, pid: int) -> None:
        """Free the places of a process that accepts no more connections."""
        for place in range(0, len(self._cells), _CELLS):
            if self._cells[place] == pid:
                self._cells[place] = 0


class EvenAcceptor:
    """Accepts the connections of a listening socket that other processes share."""

    def __init__(
        self,
        listener: socket.socket,
        counts: ConnectionCounts,
        connections: Collection[object],
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        """Prepare to accept. `connections` are those that are open; `make_protocol` makes one for each new one."""
        self._listener, self._counts, self._connections = listener, counts, connections
        self._make_protocol = make_protocol
        self._wake, self._is_stopping = asyncio.Event(), False
        self._accepting: asyncio.Task[None] | None = None

    def start(self, on_failure: Callable[[], None]) -> None:
        """Accept connections from now on. `on_failure` is called if that ends by an unexpected error."""
        self._listener.setblocking(False)  # noqa: FBT003  # its only argument
        self._accepting = asyncio.create_task(self._accept(), name="accept connections")
        self._accepting.add_done_callback(lambda _: None if self._is_stopping else on_failure())

    async def stop(self) -> None:
        """Accept no more connections. One that is being accepted is waited for: it is never left half open."""
        self._is_stopping = True
        self._wake.set()
        if self._accepting is not None:
            await asyncio.gather(self._accepting, return_exceptions=True)
        self._counts.forget(os.getpid())

    def show(self) -> None:
        """Show how many connections are open now."""
        self._counts.show(len(self._connections))

    async def _accept(self) -> None:
        while True:
            self.show()
            await self._until_one_waits()
            is_next = await self._give_way()
            if self._is_stopping:
                return
            try:
                for _ in range(1 if is_next else MOST_AT_ONCE):
                    await self._accept_one()
            except (BlockingIOError, InterruptedError, ConnectionError):
                continue  # another process has taken it, or its client has gone
            except OSError as error:
                log.error("connection not accepted", error=error.strerror, pause_seconds=PAUSE_SECONDS)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _until_one_waits(self) -> None:
        """Return once a connection waits, or accepting is to stop."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._listener)
        self._wake.clear()

    async def _give_way(self) -> bool:
        """Return whether this process is the next to accept, once it is or the others have had their time."""
        for _ in range(LOOKS):
            self.show()
            if self._counts.has_most_room():
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _accept_one(self) -> None:
        connection, _ = self._listener.accept()
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, connection)
        except BaseException:
            connection.close()
            raise
