"""Where every statement and every commit goes through: one intent, one transaction, tried again where that is safe."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection.failures import DRIVER_ERRORS, explain
from throughline.db.connection.pool import ConnectionPool
from throughline.db.connection.statement import Row, Statement
from throughline.domain.errors import DatabaseFull

TRIES = 3
FIRST_PAUSE_SECONDS = 0.02
log = structlog.get_logger(__name__)
T = TypeVar("T")


class Statements(Protocol):
    """Runs statements; each intent is written against this."""

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Run one statement and return its rows, none where it returns none; further parameters are left aside."""


class Transactions:
    """Runs intents over the pool.

    An intent must come to the same result when it is run twice: its first commit may have succeeded although the
    answer was lost. Every intent of this package does, through an id made beforehand, a unique key or a fence.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        """Use the pool; single statements commit by themselves, without further round trips but behind a pooler."""
        self._pool = pool
        self._full_at = float("-inf")

    def was_full(self, seconds: float) -> bool:
        """Whether the database had no room left for something in the last `seconds`."""
        return time.monotonic() - self._full_at < seconds

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Run one statement as a transaction of its own.

        Raises DatabaseUnavailable, DatabaseUnusable, InvalidInput (a value that cannot be stored).
        """
        if self._pool.is_pooled:  # its messages meet one server, and its limits, only in a transaction
            return await self.run(lambda tx: tx.fetch(statement, **parameters))

        async def once() -> Sequence[Row]:
            async with self._pool.connection() as connection:
                return await _OnConnection(connection).fetch(statement, **parameters)

        return await self._noting(once)

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        """Run the intent's statements in one transaction: all of it is stored, or nothing. Raises as `fetch`."""

        async def once() -> T:
            async with self._pool.connection() as connection:
                return await _in_transaction(connection, self._pool.begin, intent)

        return await self._noting(once)

    async def _noting(self, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await _with_retries(once)
        except DatabaseFull:
            self._full_at = time.monotonic()
            raise


class _OnConnection:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(statement.text, *statement.arguments(parameters))
        return rows


async def _in_transaction(
    connection: asyncpg.Connection, begin: str, intent: Callable[[Statements], Awaitable[T]]
) -> T:
    await connection.execute(begin)
    try:
        result = await intent(_OnConnection(connection))
    except TimeoutError:
        raise  # no answer came: another statement would get none either, and the connection is given up
    except Exception:
        with suppress(*DRIVER_ERRORS):  # what the intent met is told, not what came of it
            await connection.execute("rollback")
        raise
    await connection.execute("commit")
    return result


async def _with_retries(once: Callable[[], Awaitable[T]]) -> T:
    tries = 0
    while True:
        tries += 1
        try:
            return await once()
        except DRIVER_ERRORS as error:
            failure = explain(error)
        if tries >= TRIES or not failure.is_repeatable:
            raise failure.error
        log.debug("transaction is tried again", tries=tries)
        pause = FIRST_PAUSE_SECONDS * 4 ** (tries - 1)
        await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # spreads retries, guards no secret
