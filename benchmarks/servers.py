"""One embedded PostgreSQL for a benchmark, shared by the service and whoever looks into its tables."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from throughline.postgres_server import EmbeddedConfig, EmbeddedServer


@asynccontextmanager
async def run_postgres(folder: Path) -> AsyncIterator[str]:
    """Yield the server's address as the setting DATABASE_URL takes it."""
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir=folder / "postgres"))
    try:
        yield server.url
    finally:
        await server.stop()


def dsn_of(url: str) -> str:
    """Return a DATABASE_URL as asyncpg takes it."""
    return url.replace("postgresql+asyncpg://", "postgresql://", 1)
