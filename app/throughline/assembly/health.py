"""Health and metrics of a process that serves no other HTTP: a worker, or Slack over Socket Mode."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from throughline.api.app import create_health_app
from throughline.api.http.config import ApiConfig
from throughline.api.http.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bound_url, limit_connections
from throughline.assembly.runtime import VERSION, Runtime
from throughline.assembly.services import make_services
from throughline.slack.health import SlackHealth

MOST_CONNECTIONS = 100
"""Most connections, for monitoring only: a process with many turns needs its file descriptors elsewhere."""

CLOSING_SECONDS = 1.0


@asynccontextmanager
async def health_served(
    runtime: Runtime, *, has_worker: bool, slack: SlackHealth | None = None
) -> AsyncGenerator[str | None]:
    """Serve health and metrics on HEALTH_PORT while the context is open.

    Raises SettingInvalid if the process cannot listen on that port. Yields the URL, None if no port is set. While turns
    are drained inside the context, the process is live and not ready.
    """
    settings = runtime.settings
    if settings.health_port is None:
        yield None
        return
    app = create_health_app(make_services(runtime, has_worker=has_worker, slack=slack), ApiConfig(version=VERSION))
    listener = bind_tcp(TcpAddress(settings.host, settings.health_port, chosen_by="HOST and --health-port"))
    shutdown, limits = Shutdown(_nothing_to_end, CLOSING_SECONDS), limit_connections(MOST_CONNECTIONS)
    server = HttpServer(app, listener, shutdown, limits)
    serving = asyncio.create_task(server.run_until_stopped(), name="serve health")
    try:
        yield bound_url(listener)
    finally:
        server.stop()
        await asyncio.gather(serving, return_exceptions=True)


async def _nothing_to_end() -> None:
    """Do nothing before the server closes: no request for health or metrics takes long."""
