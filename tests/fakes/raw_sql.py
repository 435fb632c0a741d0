"""Statements past the repositories, for looking at what is really stored and for breaking things."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]  # ships no types

from fakes.waiting import until_found
from throughline.db.connection.address import parse_address

BACKENDS = "(select * from pg_stat_activity where datname = current_database()) backends"
"""Those of the test's own database: other processes of the tests use the same server."""


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncGenerator[asyncpg.Connection]:
    """Yield a connection past the repositories, with these settings of the server."""
    connection = await asyncpg.connect(**parse_address(url).arguments(), server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def run_sql(url: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own and return its rows."""
    async with connected(url) as connection:
        return [tuple(row) for row in await connection.fetch(statement, *arguments)]


async def until_sql(url: str, statement: str, rows: list[tuple[object, ...]] | None = None) -> None:
    """Ask on one connection until the statement returns just these rows, or any. Raises TimeoutError."""
    async with connected(url) as connection:

        async def is_so() -> bool:
            found = [tuple(row) for row in await connection.fetch(statement)]
            return bool(found) if rows is None else found == rows

        await until_found(is_so)


async def end_leases(url: str) -> None:
    """Have the leases of runs and of Slack's deliveries be over now, as time would: their holders were killed."""
    await run_sql(url, "update runs set lease_until = now() where lease_until > now()")
    await run_sql(url, "update slack_deliveries set lease_until = now() where lease_until > now()")


@asynccontextmanager
async def hold_rows(url: str, statement: str) -> AsyncGenerator[None]:
    """Keep the locks that a statement takes until the block ends."""
    async with connected(url) as connection, connection.transaction():
        await connection.execute(statement)
        yield
