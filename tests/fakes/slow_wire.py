"""A wire to a server that delivers its answers late, as a long way or a busy standby does, until it is cut."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class SlowWire:
    """Passes on what the server at `to_port` sends after `lag_seconds`; after `cut` what is under way is lost."""

    to_port: int
    lag_seconds: float
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _is_cut: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one client with the server."""
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        except OSError:
            writer.close()
            return
        asked = asyncio.create_task(self._pass_on(reader, server_writer, 0.0))
        answered = asyncio.create_task(self._pass_on(server_reader, writer, self.lag_seconds))
        self._tasks |= {asked, answered}
        self._writers += [writer, server_writer]
        await asyncio.wait({asked, answered}, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, server_writer):
            each.close()

    async def close(self) -> None:
        """Close all connections, whatever is under way."""
        self.cut()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    def cut(self) -> None:
        """Lose what is under way, and pass on nothing more."""
        self._is_cut = True
        for task in self._tasks:
            task.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lag_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                loop.call_later(lag_seconds, self._write, writer, data)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not self._is_cut and not writer.is_closing():
            writer.write(data)


@asynccontextmanager
async def slow_wire(to_port: int, lag_seconds: float) -> AsyncGenerator[SlowWire]:
    """Yield a wire to the server at a port of the loopback; it is cut at the end."""
    wire = SlowWire(to_port, lag_seconds)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.close()
