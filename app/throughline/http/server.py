"""The HTTP server: it serves the application over TCP or a unix socket and stops gracefully."""

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from throughline.domain.errors import SettingInvalid
from throughline.http.accept import ConnectionCounts, EvenAcceptor
from throughline.http.problem_documents import error_problem
from throughline.http.protocol import BEYOND_LIMIT, ConnectionLimits, LimitedProtocol, LimitedWebSocket
from throughline.http.route_errors import TooManyConnections

STILL_SERVED = ("/health/live", "/health/ready", "/metrics")
RETRY_SECONDS = 5.0


def refuse_beyond_limit(app: ASGIApp) -> ASGIApp:
    """Wrap `app` so that connections beyond the limit get only the health and metrics routes.

    Their other requests are answered with TooManyConnections (503).
    """

    async def refuse_or_serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = scope.get("state", {}).get(BEYOND_LIMIT) and scope["path"] not in STILL_SERVED
        if scope["type"] != "http" or not is_refused:
            await app(scope, receive, send)
            return
        error = TooManyConnections(
            "The service has reached its limit of connections (MAX_CONNECTIONS). Try again later.",
            delay_seconds=RETRY_SECONDS,
        )
        response = error_problem(error)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    return refuse_or_serve


BACKLOG = 2048
KNOWN = frozenset({
    "ASGI callable returned without completing response.",
    "ASGI callable returned without completing handshake.",
    "Invalid UTF-8 sequence received from client.",
})
"""Errors of uvicorn's about what the service does on purpose, and about what a client sends."""

WEBSOCKET = '"WebSocket %s"'
"""Part of uvicorn's log lines for each WebSocket that is opened or refused; there are none for other requests."""

OTHER_DESCRIPTORS = 256
"""File descriptors reserved for everything but connections: the database, models, logs."""

RESERVE_PART = 4
"""Divisor for the reserve if file descriptors are few: at most one connection in four is kept for refusals and health.
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """TCP address to listen on; port 0 selects a free port.

    `chosen_by` names the settings with which the operator chose the address, for error texts.
    """

    host: str
    port: int
    chosen_by: str = "HOST and PORT, or --host and --port"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """How the server stops. `before_closing` runs while connections are open; they are cut after `grace_seconds`."""

    before_closing: Callable[[], Awaitable[None]]
    grace_seconds: float


def bind_tcp(address: TcpAddress) -> socket.socket:
    """Return a listening TCP socket. Raises SettingInvalid if the process cannot listen on the address."""
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
    """Return a listening unix socket. The permissions of its folder decide who may connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(BACKLOG)
    return listener


def bound_host(listener: socket.socket) -> str:
    """Return the address of this machine at which a TCP listener takes connections, whatever the settings say now."""
    return str(listener.getsockname()[0])


def bound_url(listener: socket.socket) -> str:
    """Return the URL at which a client reaches a TCP listener."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _KnownCuts(logging.Filter):
    """Log filter that drops uvicorn's lines about WebSockets, and its errors of KNOWN.

    The service cuts event streams on purpose, so that a reader can tell a cut stream from a complete one. It does so
    when the session is deleted, at shutdown, and for a reader that reads nothing. The service logs each of these cuts
    itself, and defects as well.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in KNOWN and WEBSOCKET not in str(record.msg)


NO_OTHER_LIMITS = ConnectionLimits()
KNOWN_CUTS = _KnownCuts()
"""The filter of all servers of a process: a logger adds the same filter object only once."""


class HttpServer(uvicorn.Server):
    """uvicorn server that serves until `stop` is called. It then runs `before_closing` while connections are open.

    `counts` are the connections of the processes that share the listener, None if there are no others.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        shutdown: Shutdown,
        limits: ConnectionLimits = NO_OTHER_LIMITS,
        counts: ConnectionCounts | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                refuse_beyond_limit(app),
                http=partial(LimitedProtocol, limits, self._is_stopping),  # type: ignore[arg-type]  # uvicorn only calls it, like a class
                ws=LimitedWebSocket,
                ws_max_size=limits.max_message_bytes,
                ws_per_message_deflate=False,
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
        self._counts = counts
        self._acceptor: EvenAcceptor | None = None
        self._has_stopped_accepting = False

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called and all connections are closed."""
        await self.serve(sockets=[self._listener])

    def stop(self) -> None:
        self.should_exit = True

    def _is_stopping(self) -> bool:
        """Return whether clients have to connect elsewhere. Before that a new connection would still meet this one."""
        return self._has_stopped_accepting

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers: the program handles signals itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; with other processes at the same socket so that each has equally many."""
        await super().startup(sockets if self._counts is None else [])
        if self._counts is not None:
            make = partial(
                cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class),
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )
            self._acceptor = EvenAcceptor(self._listener, self._counts, self.server_state.connections, make)
            self._acceptor.start(on_failure=self.stop)

    async def on_tick(self, counter: int) -> bool:
        """Show the other processes how many connections are open. uvicorn calls this ten times a second."""
        if self._acceptor is not None:
            self._acceptor.show()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Run `before_closing` while uvicorn waits for open connections, so that turns in progress can end."""
        if self._acceptor is not None:
            await self._acceptor.stop()
        closing = asyncio.ensure_future(self._shutdown.before_closing())
        asyncio.get_running_loop().call_soon(self._note_closed_listener)  # uvicorn closes it before it waits
        await super().shutdown(sockets)
        await closing

    def _note_closed_listener(self) -> None:
        self._has_stopped_accepting = True


def limit_connections(wanted: int) -> ConnectionLimits:
    """Return limits for `wanted` connections, or for as many as the file descriptors allow.

    Each connection needs a file descriptor. The process's descriptor limit is raised as far as permitted. If
    descriptors are still too few, the reserve of connections for refusals and health checks is reduced as well.
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
    log.warning("connection limit lowered to fit file descriptors", connections=allowed, descriptors=soft)
    return ConnectionLimits(max_connections=allowed, reserve=reserve)
