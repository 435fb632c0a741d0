"""The line between a supervisor and each of its child processes: a pair of sockets.

The child writes READY once it serves, then ALIVE every ALIVE_SECONDS from its event loop. The supervisor writes how
many children serve. If one of the two processes dies, its end of the line closes, which the other one notices at once.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

READY, ALIVE = b"ready\n", b"alive\n"
ALIVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ChildCount:
    """The number of child processes that serve, and the number that the supervisor was asked for."""

    serving: int
    wanted: int

    def written(self) -> bytes:
        """Return the count as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class SupervisorLine:
    """A child's end of the line. `count` is what the supervisor wrote last."""

    def __init__(self, count: ChildCount, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use the open streams of the line."""
        self.count = count
        self._reader, self._writer = reader, writer

    def report_ready(self) -> None:
        """Report that this process serves now."""
        self._writer.write(READY)

    async def read_counts(self) -> None:
        """Keep `count` up to date; return once the supervisor has ended."""
        while line := await self._reader.readline():
            self.count = ChildCount(**json.loads(line))

    async def report_alive(self, before: Callable[[], None]) -> None:
        """Report every ALIVE_SECONDS that the event loop runs, until cancelled; call `before` each time."""
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            before()
            self._writer.write(ALIVE)


@asynccontextmanager
async def open_line(
    descriptor: int, count: ChildCount, *, on_end: Callable[[], None], before_alive: Callable[[], None]
) -> AsyncGenerator[SupervisorLine]:
    """Yield the child's end of the line, which has this file descriptor.

    `on_end` is called if the supervisor ends. `before_alive` is called every ALIVE_SECONDS.
    """
    reader, writer = await asyncio.open_unix_connection(sock=inherit_socket(descriptor))
    line = SupervisorLine(count, reader, writer)
    reading = asyncio.create_task(line.read_counts(), name="read the supervisor's line")
    reading.add_done_callback(lambda ended: None if ended.cancelled() else on_end())
    reporting = asyncio.create_task(line.report_alive(before_alive), name="report to the supervisor")
    try:
        yield line
    finally:
        for task in (reading, reporting):
            task.cancel()
        await asyncio.gather(reading, reporting, return_exceptions=True)
        writer.close()


def inherit_socket(descriptor: int) -> socket.socket:
    """Return the socket with this file descriptor of the supervisor's. Programs that this process starts do not get it.

    Raises OSError if there is none.
    """
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    return inherited
