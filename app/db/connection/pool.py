"""The pool that intents run over: asyncpg's, with the service's session settings on each of its connections."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types

from app.db.connection.address import Address
from app.db.connection.failures import PoolTimeout, is_connection_lost

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 8.0
"""How long we wait for a statement's answer: longer than the server allows any, so only a dead network gets here."""

CLOSE_TIMEOUT_SECONDS = 5.0
CACHED_STATEMENTS = 200
"""Prepared on each connection; the service has fewer."""

SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": "throughline",
    "timezone": "UTC",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": "7s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "4s",
}
"""No intent waits for anything but the database inside a transaction: 4 s idle in one means a stopped process."""

LIMIT_TRANSACTIONS = (
    "select set_config('transaction_timeout', '20s', false) where current_setting('server_version_num')::int >= 170000"
)
"""A process that was stopped between two messages of one statement is not idle to PostgreSQL, but still holds locks."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """How many connections there are at most, and how long to wait for a free one.

    A statement without an answer after `answer_seconds` has failed; a connection that nobody has used for
    `idle_seconds` is closed (0: never).
    """

    size: int
    timeout_seconds: float
    answer_seconds: float = ANSWER_TIMEOUT_SECONDS
    idle_seconds: float = 0.0


class ConnectionPool:
    """A pool of at most `size` connections, made when they are first needed.

    Connections are neither pinged before use nor reset behind it: each would cost a round trip for every intent. One
    that died is noticed by its first statement, and the intent is run again on a new one; no intent changes a
    connection's settings beyond its own transaction.
    """

    def __init__(self, address: Address, config: PoolConfig) -> None:
        """Nothing is connected before the first `connection`."""
        self._address = address
        self._config = config
        self._free = asyncio.Semaphore(config.size)
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    @property
    def keeps_statements(self) -> bool:
        """Whether a statement that was prepared is still there for the next one; not behind a transaction pooler."""
        return self._address.keeps_statements

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[asyncpg.Connection]:
        """Yield a connection that nobody else uses inside the block.

        One that may still be busy, or lead nowhere, is closed. Raises DRIVER_ERRORS, of these PoolTimeout where all
        connections stayed in use.
        """
        await self._reserve()
        try:
            pool = self._pool or await self._open()
            connection = await pool.acquire()
            try:
                yield connection
            except BaseException as error:
                if _is_unusable(error):
                    connection.terminate()
                if is_connection_lost(error):
                    await pool.expire_connections()  # the others lead there, too: new ones find the new primary
                raise
            finally:
                await pool.release(connection)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close all connections; what is still in use after a few seconds is cut."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _reserve(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._config.timeout_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise PoolTimeout from None

    async def _open(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(**self._arguments())
        return self._pool

    def _arguments(self) -> dict[str, object]:
        return {
            **self._address.arguments(),
            "server_settings": dict(SESSION_SETTINGS),
            "timeout": CONNECT_TIMEOUT_SECONDS,
            "command_timeout": self._config.answer_seconds,
            "statement_cache_size": CACHED_STATEMENTS if self.keeps_statements else 0,
            "max_cacheable_statement_size": 0,
            "min_size": 0,
            "max_size": self._config.size,
            "max_inactive_connection_lifetime": self._config.idle_seconds,
            "init": _prepare,
            "reset": _leave_as_it_is,
        }


async def _prepare(connection: asyncpg.Connection) -> None:
    await connection.execute(LIMIT_TRANSACTIONS)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=_read_json)


async def _leave_as_it_is(connection: asyncpg.Connection) -> None:
    """See ConnectionPool: nothing is to be undone."""
    del connection


def _is_unusable(error: BaseException) -> bool:
    """Whether an answer may still be on its way: somebody stopped waiting for it."""
    return isinstance(error, asyncio.CancelledError | TimeoutError | GeneratorExit) or is_connection_lost(error)


def _read_json(written: str) -> object:
    """Parse a jsonb value; most columns of most rows are empty, and a parser call for each would be felt."""
    if written in {"{}", "[]"}:
        return {} if written == "{}" else []
    return json.loads(written)
