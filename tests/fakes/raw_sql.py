"""Statements past the repositories, for looking at what is really stored and for breaking things."""

import asyncpg  # type: ignore[import-untyped]  # ships no types

from app.db.address import parse_address


async def run_sql(url: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
    """Run one statement on a connection of its own and return its rows."""
    connection = await asyncpg.connect(**parse_address(url).arguments())
    try:
        return [tuple(row) for row in await connection.fetch(statement, *arguments)]
    finally:
        await connection.close()
