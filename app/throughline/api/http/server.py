"""Serving the application over TCP or a unix socket, and stopping it so that no answer is cut without need."""

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from throughline.api.http.protocol import ConnectionLimits, LimitedProtocol, refusing_beyond_limit
from throughline.domain.errors import SettingInvalid

BACKLOG = 2048
CUT = "ASGI callable returned without completing response."
OTHER_DESCRIPTORS = 256
"""For everything but connections: the database, models, logs."""

RESERVE_PART = 4
"""Of the connections that few descriptors allow, the part that is kept for refusals and health."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where to listen; port 0 takes a free one. `chosen_by` is what the operator chose it with."""

    host: str
    port: int
    chosen_by: str = "HOST and PORT, or --host and --port"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """How serving ends: `before_closing` runs beside the open connections, which are cut after `grace_seconds`."""

    before_closing: Callable[[], Awaitable[None]]
    grace_seconds: float


def bind_tcp(address: TcpAddress) -> socket.socket:
    """Return a listening socket. Raises SettingInvalid where the address is in use or not ours."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, name = found[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(name)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise SettingInvalid(
            f"Cannot listen on {address.host}:{address.port}: {error.strerror or error}. "
            f"Choose another with {address.chosen_by}."
        ) from error
    return listener


def bind_unix(path: Path) -> socket.socket:
    """Return a listening unix socket; the folder it lies in decides who may reach it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(BACKLOG)
    return listener


def bound_url(listener: socket.socket) -> str:
    """Return the address of a TCP listener as a client writes it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _KnownCuts(logging.Filter):
    """Keeps back uvicorn's error on a response that was begun and not ended.

    That is how an event stream is cut, so that its reader can tell it from one that has come to its end: when its
    session is deleted, at shutdown, for a reader that takes nothing. Each is logged by us; a defect is, too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        return record.msg != CUT


NO_OTHER_LIMITS = ConnectionLimits()
KNOWN_CUTS = _KnownCuts()
"""One for all servers of a process: a logger has a filter once."""


class HttpServer(uvicorn.Server):
    """Serves until `stop`; then waits for `before_closing` beside the open connections."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, shutdown: Shutdown, limits: ConnectionLimits = NO_OTHER_LIMITS
    ) -> None:
        """Serve `app` on `listener`."""
        super().__init__(
            uvicorn.Config(
                refusing_beyond_limit(app),
                http=partial(LimitedProtocol, limits),  # type: ignore[arg-type]  # called only, as a class would be
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=max(1, round(shutdown.grace_seconds)),
                timeout_keep_alive=30,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(KNOWN_CUTS)
        self._listener = listener
        self._shutdown = shutdown

    async def run_until_stopped(self) -> None:
        """Serve; returns when everything is closed."""
        await self.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Begin the shutdown."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the program."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let turns end while uvicorn waits for the connections that follow them."""
        closing = asyncio.ensure_future(self._shutdown.before_closing())
        await super().shutdown(sockets)
        await closing


def limit_connections(wanted: int) -> ConnectionLimits:
    """Return limits for `wanted` connections, or for as many as can be held. Each is a file descriptor.

    Those have a limit, which is raised as far as it may be. Of few descriptors the reserve takes a part, too.
    """
    reserve = NO_OTHER_LIMITS.reserve
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + reserve + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ConnectionLimits(max_connections=wanted)
    held = max(soft - OTHER_DESCRIPTORS, soft // 2)
    reserve = min(reserve, held // RESERVE_PART)
    allowed = min(wanted, held - reserve)
    log.warning("fewer connections than set: too few file descriptors", connections=allowed, descriptors=soft)
    return ConnectionLimits(max_connections=allowed, reserve=reserve)
