"""A server in the running loop that a test can end at once."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a bound socket; at the end connections have a second to finish."""
    listener.listen()
    server = _FastStoppingServer(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.stopped.set()
        await task


class _FastStoppingServer(uvicorn.Server):
    """Ends at once: uvicorn looks each tenth of a second whether it shall, and gives connections another one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets what stands in every answer's head
        await self.stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # those that wait for a request are closed
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        for listener in sockets or []:
            listener.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
