"""Serving of the REST API on a listening socket, with or without turns in this process.

Serving ends when it is stopped, or when the claim loop fails; it then raises ClaimingFailed.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace

from throughline.api.app import add_interface, create_app
from throughline.api.http.server import HttpServer, Shutdown, limit_connections
from throughline.api.http.services import ApiConfig
from throughline.assembly.garbage_collector import tune_collector
from throughline.assembly.process_heartbeats import noted
from throughline.assembly.runtime import Runtime
from throughline.assembly.services import make_services
from throughline.assembly.slack import SlackHttpInterface
from throughline.domain.errors import ClaimingFailed
from throughline.domain.ids import UserId
from throughline.stopping import first_of

CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServeMode:
    """How to serve the REST API until `stop` is set.

    `has_worker`: turns run in this process, with `only_for` those of this user alone. `slack` is served, too, if set.
    """

    has_worker: bool = True
    only_for: UserId | None = None
    slack: SlackHttpInterface | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving_on(
    listener: socket.socket, runtime: Runtime, config: ApiConfig, mode: ServeMode
) -> AsyncGenerator[None]:
    """Serve the REST API on `listener` while the context is open. Raises ClaimingFailed if the claim loop crashed."""
    async with noted(runtime, has_worker=mode.has_worker and mode.only_for is None):
        serving = asyncio.create_task(serve_on(listener, runtime, config, mode))
        try:
            yield
        finally:
            mode.stop.set()
            await serving


async def serve_on(listener: socket.socket, runtime: Runtime, config: ApiConfig, mode: ServeMode) -> None:
    """Serve the REST API on `listener` until `mode.stop` is set or the claim loop crashes.

    At the end turns get their grace period; unfinished event streams are then aborted. Raises ClaimingFailed after a
    crash of the claim loop.
    """
    slack = None if mode.slack is None else mode.slack.health
    services = make_services(runtime, has_worker=mode.has_worker, slack=slack)

    async def before_closing() -> None:
        await runtime.worker.drain()
        services.cut_off()

    app = create_app(services, config)
    if mode.slack is not None:
        add_interface(app, mode.slack.path, mode.slack.endpoint)
    grace = runtime.settings.shutdown_grace_seconds + CLOSING_SECONDS
    limits = replace(
        limit_connections(runtime.settings.max_connections), max_message_bytes=runtime.settings.max_body_bytes
    )
    server = HttpServer(app, listener, Shutdown(before_closing, grace), limits)
    tune_collector()
    working = runtime.worker.working(only_for=mode.only_for) if mode.has_worker else nullcontext(asyncio.Event())
    async with working as broken:
        watching = asyncio.create_task(_stop_when(server, mode.stop, broken))
        await server.run_until_stopped()
        watching.cancel()
    check_unbroken(broken)


async def _stop_when(server: HttpServer, *events: asyncio.Event) -> None:
    await first_of(*events)
    server.stop()


def check_unbroken(broken: asyncio.Event) -> None:
    """Raise ClaimingFailed if `broken` is set, which means that the claim loop has crashed.

    The program then ends with an error, and its supervisor can start it again.
    """
    if broken.is_set():
        raise ClaimingFailed(
            "The claim loop crashed, see the log above: this process took no more turns and has ended."
        )
