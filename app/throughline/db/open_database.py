"""Opening the database: the configured server, or else the embedded one, which runs as long as it is in use."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from throughline.db.connection.address import Address, DatabaseUrls
from throughline.db.connection.migrations import upgrade
from throughline.db.connection.pooler import check_direct, check_urls
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.execution.error_boundary import running_concurrently
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer, choose_data_dir, has_cluster


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """The database's location: the server at `url`, or, if that is empty, an embedded server.

    The embedded server has its files in `data_dir`, None for the default folder. With a `direct_url`, `url` is a
    connection pooler's: see DatabaseUrls.
    """

    url: str = ""
    data_dir: Path | None = None
    direct_url: str = ""

    @property
    def description(self) -> str:
        """The location as display text, without role and password. Raises DatabaseUnusable."""
        if not self.url:
            return f"embedded, in {choose_data_dir(self.data_dir)}"
        address = DatabaseUrls(self.url, self.direct_url).session_address()
        return f"{address.url.database or 'of the role'} at {address.place} ({address.setting})"


@asynccontextmanager
async def open_address(where: DatabaseLocation) -> AsyncGenerator[DatabaseUrls]:
    """Yield the configured URLs after checking them, or start the embedded server and yield its URL.

    The embedded server stops at the end. Raises DatabaseUnusable, or DatabaseUnavailable, which names host and port.
    """
    if where.url:
        urls = DatabaseUrls(where.url, where.direct_url)
        await check_urls(urls)
        with _named(urls.shared_address()):
            yield urls
        return
    async with _embedded(where) as url:
        yield DatabaseUrls(url)


@asynccontextmanager
async def open_direct_address(where: DatabaseLocation, *, may_create: bool = True) -> AsyncGenerator[str]:
    """Yield the URL for connections that need a database session of their own, after checking it.

    A configured pooler may be down. Without a configured URL the embedded server runs inside the block. Raises
    DatabaseUnavailable, which names host and port. Raises DatabaseUnusable, also if an embedded database would have to
    be created and `may_create` is False.
    """
    if where.url:
        urls = DatabaseUrls(where.url, where.direct_url)
        await check_direct(urls)
        with _named(urls.session_address()):
            yield urls.for_sessions
        return
    if not may_create and not has_cluster(where.data_dir):
        raise DatabaseUnusable(
            f"There is no embedded database in {choose_data_dir(where.data_dir)}, and DATABASE_URL is not set. Set it "
            "to the service's database, or name the folder of its embedded one with --data-dir or DATA_DIR."
        )
    async with _embedded(where) as url:
        yield url


@contextmanager
def _named(address: Address) -> Generator[None]:
    """Add host and port to DatabaseUnavailable errors raised inside the block."""
    try:
        yield
    except DatabaseUnavailable as error:
        detail = f"PostgreSQL at {address.place} ({address.setting}): {error.detail}"
        raise DatabaseUnavailable(detail, delay_seconds=error.delay_seconds) from None


@asynccontextmanager
async def _embedded(where: DatabaseLocation) -> AsyncGenerator[str]:
    """Run the embedded server inside the block; yield its URL."""
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=where.data_dir))
    try:
        async with running_concurrently(server.watch, "watch the embedded server"):
            yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def open_database(where: DatabaseLocation, config: DatabaseConfig, *, migrate: bool) -> AsyncGenerator[Database]:
    """Yield the open database, upgraded to the newest schema first if `migrate`.

    The URLs in `config` are replaced by those of `where`.
    """
    async with open_address(where) as urls:
        if migrate:
            await upgrade(urls.for_sessions)
        database = await Database.open(replace(config, url=urls.url, direct_url=urls.direct_url))
        try:
            yield database
        finally:
            await database.close()
