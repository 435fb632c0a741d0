"""This process's share of the embedded PostgreSQL server: start it or attach to it, restart it if it dies, release it.

The last process that releases its share stops the server. The service gets the URL to connect to from here.
"""

import asyncio

import structlog
from sqlalchemy import URL

from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.postgres_server.cluster import DATABASE, ROLE
from throughline.postgres_server.config import EmbeddedConfig
from throughline.postgres_server.shared_server import SharedServer

_WATCH_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0
_log = structlog.get_logger()


class EmbeddedServer:
    """A process's share of the PostgreSQL server that all processes of one data directory use."""

    def __init__(self, share: SharedServer) -> None:
        """Wrap a share; use `start` to create one."""
        self._share = share

    @classmethod
    async def start(cls, config: EmbeddedConfig) -> "EmbeddedServer":
        """Attach to the running server, or start it, creating its data if missing; return when it accepts connections.

        If cancelled, releases the share first.

        Raises:
            DatabaseUnusable: the data directory or the programs cannot be used; the text says why and what to do.
            DatabaseUnavailable: not ready in time (crash recovery goes on), or another process holds the start lock.
        """
        attaching = asyncio.create_task(asyncio.to_thread(SharedServer.attach, config))
        try:
            return cls(await asyncio.shield(attaching))
        except asyncio.CancelledError:
            await asyncio.wait([attaching])
            if attaching.exception() is None:
                await asyncio.to_thread(attaching.result().release)
            raise

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database for the service's role, by the Unix socket; contains the password."""
        return URL.create(
            "postgresql+asyncpg",
            username=ROLE,
            password=self._share.password,
            database=DATABASE,
            query={"host": str(self._share.socket_dir), "port": "5432"},
        ).render_as_string(hide_password=False)

    async def watch(self) -> None:
        """Restart the server whenever it is found dead; runs until cancelled.

        A failed restart is logged and tried again after a growing pause.
        """
        pause_seconds = _WATCH_SECONDS
        while True:
            await asyncio.sleep(pause_seconds)
            try:
                if await asyncio.to_thread(self._share.revive):
                    _log.warning("embedded postgresql restarted after its death")
                pause_seconds = _WATCH_SECONDS
            except (DatabaseUnusable, DatabaseUnavailable, OSError) as error:
                _log.error("embedded postgresql restart failed, retried later", detail=str(error))
                pause_seconds = min(pause_seconds * 2, _MAX_PAUSE_SECONDS)

    async def stop(self) -> None:
        """Release the share; the last process stops the server. Cancel `watch` first."""
        await asyncio.to_thread(self._share.release)
