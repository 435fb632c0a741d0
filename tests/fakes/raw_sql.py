"""Statements past the repositories, and the plans of those that repositories execute."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import asyncpg  # type: ignore[import-untyped]  # ships no types

from fakes.waiting import until_found
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import SESSION_SETTINGS, ConnectionPool, Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database
from throughline.domain.basic_types import JsonObject

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


async def tables_with(url: str, word: str) -> list[str]:
    """Return the tables with a row that holds the word anywhere: what a dump of the database would show."""
    tables = await run_sql(url, "select schemaname || '.' || tablename from pg_tables where schemaname = 'public'")
    names = [str(name) for (name,) in tables]
    return [
        name for name in names if await run_sql(url, f"select 1 from {name} t where t::text ilike '%{word}%' limit 1")
    ]


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


class ExplainedTransactions(Transactions):
    """Notes the plan of the last statement that contains `words`, as it was run."""

    plan: JsonObject

    def __init__(self, pool: ConnectionPool, words: str) -> None:
        super().__init__(pool)
        self._words = words

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        if self._words in statement.text:
            explained = replace(statement, text=f"explain (analyze, format json) {statement.text}")
            (row,) = await super().fetch(explained, **parameters)
            plan = row["QUERY PLAN"]
            self.plan = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return await super().fetch(statement, **parameters)


async def plan_of(url: str, mode: str, statement: Statement, **parameters: object) -> JsonObject:
    """Run the statement by a plan that does not know the parameters, or does, as `plan_cache_mode` says; return it."""
    values = ", ".join(_literal(parameters[name]) for name in statement.names)
    async with connected(url, **SESSION_SETTINGS, plan_cache_mode=mode) as connection:
        await connection.execute(f"prepare kept as {statement.text}")
        plan = await connection.fetchval(f"explain (analyze, format json) execute kept({values})")
    return cast("JsonObject", json.loads(plan)[0]["Plan"])


def _literal(value: object) -> str:
    if value is None or isinstance(value, int):
        return "null" if value is None else str(value)
    return f"'{{{', '.join(map(str, value))}}}'" if isinstance(value, list) else f"'{value}'"


def rows_read(plan: JsonObject, table: str) -> int:
    """Return how many rows of a table, or of its partitions, a plan that was run has read."""
    scans = [node for node in nodes_of(plan) if str(node.get("Relation Name", "")).startswith(table)]
    read = ("Actual Rows", "Rows Removed by Filter")
    return round(sum(float(str(node.get(key, 0))) * int(str(node["Actual Loops"])) for node in scans for key in read))


def nodes_of(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    children = plan.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        assert isinstance(child, dict)
        yield from nodes_of(child)


WAITING = f"select 1 from {BACKENDS} where wait_event_type = 'Lock'"


@asynccontextmanager
async def slow_request(database: Database, url: str) -> AsyncGenerator[None]:
    """Have a request hold a connection of the pool until the block ends: it waits for a table."""
    async with hold_rows(url, "lock table token_calibration"):
        asking = asyncio.create_task(database.calibrations.load("any"))
        await until_sql(url, WAITING)
        yield
    await asyncio.gather(asking, return_exceptions=True)  # it may have waited for longer than requests do
