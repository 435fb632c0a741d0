"""Statements past the repositories, for looking at what is really stored and for breaking things."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]  # ships no types

from app.db.connection.address import parse_address
from fakes.waiting import until_found

BACKENDS = "(select * from pg_stat_activity where datname = current_database()) backends"
"""Those of the test's own database: other processes of the tests use the same server."""


async def run_sql(url: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own and return its rows."""
    connection = await asyncpg.connect(**parse_address(url).arguments())
    try:
        return [tuple(row) for row in await connection.fetch(statement, *arguments)]
    finally:
        await connection.close()


async def until_sql(url: str, statement: str, rows: list[tuple[object, ...]] | None = None) -> None:
    """Ask on one connection until the statement returns just these rows, or any. Raises TimeoutError."""
    connection = await asyncpg.connect(**parse_address(url).arguments())

    async def is_so() -> bool:
        found = [tuple(row) for row in await connection.fetch(statement)]
        return bool(found) if rows is None else found == rows

    try:
        await until_found(is_so)
    finally:
        await connection.close()


async def end_leases(url: str) -> None:
    """Have the leases of runs and of Slack's deliveries be over now, as time would: their holders were killed."""
    await run_sql(url, "update runs set lease_until = now() where lease_until > now()")
    await run_sql(url, "update slack_deliveries set lease_until = now() where lease_until > now()")


@asynccontextmanager
async def hold_rows(url: str, statement: str) -> AsyncGenerator[None]:
    """Keep the locks that a statement takes until the block ends."""
    connection = await asyncpg.connect(**parse_address(url).arguments())
    try:
        async with connection.transaction():
            await connection.execute(statement)
            yield
    finally:
        await connection.close()
