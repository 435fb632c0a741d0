"""Execution of all statements and transactions over the pool, with retries of repeatable failures."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection.failures import DRIVER_ERRORS, explain
from throughline.db.connection.pool import ConnectionPool, Row, Statement
from throughline.domain.errors import DatabaseFull
from throughline.ports.tracing import StatementPart, traced

TRIES = 3
TRIES_AFTER_ROLLBACK = 20
"""Tries of a transaction that the server undoes for others. In one of many statements one fails more often than not."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.25
log = structlog.get_logger(__name__)
T = TypeVar("T")


class Statements(Protocol):
    """An executor of statements; functions of this package take it to run alone or in a transaction."""

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Run one statement and return its rows, possibly none; parameters the statement does not use are ignored."""


class Transactions:
    """Runs transactions over the pool, and repeats them after repeatable failures.

    A transaction must give the same result when it is run twice, because its first commit may have succeeded although
    the server's reply was lost. All transactions of this package do, by an id made beforehand, a unique key or a fence.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        """Use `pool`. A single statement commits by itself; behind a pooler it takes further round trips."""
        self._pool = pool
        self._full_at = float("-inf")

    def was_full(self, seconds: float) -> bool:
        """Whether a statement failed with DatabaseFull in the last `seconds`."""
        return time.monotonic() - self._full_at < seconds

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Run one statement as a transaction of its own.

        Raises DatabaseUnavailable, DatabaseUnusable, InvalidInput (a value that cannot be stored).
        """
        if self._pool.is_pooled:  # only a transaction keeps one server connection and its limits
            return await self.run(lambda tx: tx.fetch(statement, **parameters))

        async def once() -> Sequence[Row]:
            async with self._pool.connection() as connection:
                return await _OnConnection(connection).fetch(statement, **parameters)

        return await self._noting(once)

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        """Run `intent`, a function of statements, in one transaction that is stored completely or not at all.

        Raises the errors of `fetch`.
        """
        return await self._noting(lambda: self.try_once(intent))

    async def try_once(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        """Run `intent` in one transaction, without a second try. Raises DRIVER_ERRORS."""
        async with self._pool.connection() as connection:
            return await _in_transaction(connection, self._pool.begin, intent)

    async def _noting(self, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await _with_retries(once)
        except DatabaseFull:
            self._full_at = time.monotonic()
            raise


class Repository:
    """Storage whose statements run through `transactions`."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions


class _OnConnection:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        arguments = statement.arguments(parameters)
        with traced(StatementPart(statement.text)):
            if statement.is_cached:
                rows: Sequence[Row] = await self._connection.fetch(statement.text, *arguments)
            else:
                prepared = await self._connection.prepare(statement.text, name="")
                rows = await prepared.fetch(*arguments, timeout=statement.answer_seconds)
        return rows

    async def execute(self, text: str) -> None:
        """Run a statement that begins or ends a transaction."""
        with traced(StatementPart(text)):
            await self._connection.execute(text)


async def _in_transaction(
    connection: asyncpg.Connection, begin: str, intent: Callable[[Statements], Awaitable[T]]
) -> T:
    statements = _OnConnection(connection)
    await statements.execute(begin)
    try:
        result = await intent(statements)
    except TimeoutError:
        raise  # a rollback would get no answer either; the connection is closed
    except Exception:
        with suppress(*DRIVER_ERRORS):  # the first error is reported, not the rollback's
            await statements.execute("rollback")
        raise
    await statements.execute("commit")
    return result


async def _with_retries(once: Callable[[], Awaitable[T]]) -> T:
    tries = 0
    while True:
        tries += 1
        try:
            return await once()
        except DRIVER_ERRORS as error:
            failure = explain(error)
        most = TRIES_AFTER_ROLLBACK if failure.is_rolled_back else TRIES
        if tries >= most or not failure.is_repeatable:
            raise failure.error
        log.debug("transaction retried", tries=tries, cause=failure.error.code)
        pause = min(FIRST_PAUSE_SECONDS * 4 ** (tries - 1), LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # spreads retries, guards no secret
