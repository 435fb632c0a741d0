"""Opening the database: the server that is configured, else the embedded one, kept alive meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.db.connection.address import parse_address
from app.db.connection.migrations import upgrade
from app.db.database import Database, DatabaseConfig
from app.domain.errors import DatabaseUnavailable
from app.postgres_server import EmbeddedConfig, EmbeddedServer


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """Where the database is: at `url`, or, where that is empty, embedded with its files in `data_dir`."""

    url: str = ""
    data_dir: Path | None = None


@asynccontextmanager
async def open_address(where: DatabaseLocation) -> AsyncGenerator[str]:
    """Yield the database's address. Raises DatabaseUnusable, DatabaseUnavailable (which names host and port)."""
    if where.url:
        try:
            yield where.url
        except DatabaseUnavailable as error:
            place = parse_address(where.url).place
            detail = f"PostgreSQL at {place} (DATABASE_URL): {error.detail}"
            raise DatabaseUnavailable(detail, delay_seconds=error.delay_seconds) from None
        return
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=where.data_dir))
    watching = asyncio.create_task(server.watch())
    try:
        yield server.url
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await server.stop()


@asynccontextmanager
async def open_database(where: DatabaseLocation, config: DatabaseConfig, *, migrate: bool) -> AsyncGenerator[Database]:
    """Yield the open database, brought to the newest schema first if `migrate`; `config.url` is filled in here."""
    async with open_address(where) as url:
        if migrate:
            await upgrade(url)
        database = await Database.open(replace(config, url=url))
        try:
            yield database
        finally:
            await database.close()
