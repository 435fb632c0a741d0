"""The pool that intents run over: connections of asyncpg's, bounded as limits.py says.

asyncpg's own pool gives a connection back in a task of its own, which takes longer than a statement does.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import Address
from throughline.db.connection.failures import PoolTimeout, is_connection_lost, is_stale_plan
from throughline.db.connection.limits import BEGIN, BEGIN_LIMITED, LIMIT_SESSION, POOLED_SETTINGS, SESSION_SETTINGS
from throughline.domain.errors import DatabaseUnusable

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 8.0
"""How long we wait for a statement's answer: longer than the server allows any, so only a dead network gets here."""

CLOSE_TIMEOUT_SECONDS = 5.0
CLOSED = (
    "The connections to the database are closed. With `throughline.client`, use a client only inside the `async with` "
    "block of its `connect`."
)
OTHER_LOOP = (
    "The connections to the database belong to another event loop, or to the process that this one was forked from. "
    "Open a client with `connect` in each loop and each process; this one goes on working where it was opened."
)
CACHED_STATEMENTS = 200
"""Prepared on each connection; the service has fewer."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """How many connections there are at most, and how long to wait for a free one.

    A statement without an answer after `answer_seconds` has failed; a connection that nobody has used for
    `idle_seconds` is not used again.
    """

    size: int
    timeout_seconds: float
    answer_seconds: float = ANSWER_TIMEOUT_SECONDS
    idle_seconds: float = float("inf")


class ConnectionPool:
    """A pool of at most `size` connections, made when they are first needed; the one used last is used next.

    Connections are neither pinged before use nor reset behind it: each would cost a round trip for every intent. One
    that died is noticed by its first statement, and the intent is run again on a new one; no intent changes a
    connection's settings beyond its own transaction.
    """

    def __init__(self, address: Address, config: PoolConfig) -> None:
        """Nothing is connected before the first `connection`."""
        self._address = address
        self._config = config
        self._free = asyncio.Semaphore(config.size)
        self._idle: list[_Idle] = []
        self._generation = 0
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands before the server: the next transaction may meet another server connection."""
        return self._address.is_pooled

    @property
    def begin(self) -> str:
        """The statement that begins a transaction."""
        return BEGIN_LIMITED if self.is_pooled else BEGIN

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[asyncpg.Connection]:
        """Yield a connection that nobody else uses inside the block.

        One that may still be busy, or leads nowhere, is closed. Raises DRIVER_ERRORS, of these PoolTimeout where all
        connections stayed in use, and DatabaseUnusable, as no try again helps, once the pool is closed and in another
        event loop than that of the first use.
        """
        await self._reserve()
        try:
            generation, connection = self._generation, self._take() or await self._connect()
            try:
                yield connection
            except BaseException as error:
                if _is_unusable(error):
                    connection.terminate()
                if generation == self._generation and (is_connection_lost(error) or is_stale_plan(error)):
                    self._leave_all()
                raise
            finally:
                self._give_back(connection, is_good=generation == self._generation)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close all connections; what is in use is closed behind its use."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        closing = (one.connection.close(timeout=CLOSE_TIMEOUT_SECONDS) for one in idle)
        await asyncio.gather(*closing, return_exceptions=True)

    async def _reserve(self) -> None:
        if self._is_closed:
            raise DatabaseUnusable(CLOSED)
        self._check_loop()
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._config.timeout_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise PoolTimeout from None

    def _check_loop(self) -> None:
        """Raise DatabaseUnusable where the connections' transports are another loop's: a use here would break them."""
        loop = _running_loop()
        self._loop = self._loop or loop
        if loop is None or loop is not self._loop:
            raise DatabaseUnusable(OTHER_LOOP)

    def _take(self) -> asyncpg.Connection | None:
        """Return the connection that was used last, None where all are busy, closed, or unused for too long."""
        while self._idle:
            one = self._idle.pop()
            if one.connection.is_closed():
                continue
            if time.monotonic() - one.since < self._config.idle_seconds:
                return one.connection
            one.connection.terminate()
        return None

    def _give_back(self, connection: asyncpg.Connection, *, is_good: bool) -> None:
        if connection.is_closed():  # asked for its transaction now, asyncpg raises, which would hide the reason
            return
        if self._is_closed or not is_good or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(_Idle(connection, time.monotonic()))

    def _leave_all(self) -> None:
        """The other connections are as this one was: only new ones find a server, a new primary, or a new schema."""
        self._generation += 1
        while self._idle:
            self._idle.pop().connection.terminate()

    async def _connect(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(
            **self._address.arguments(),
            server_settings=dict(POOLED_SETTINGS if self.is_pooled else SESSION_SETTINGS),
            timeout=CONNECT_TIMEOUT_SECONDS,
            command_timeout=self._config.answer_seconds,
            statement_cache_size=0 if self.is_pooled else CACHED_STATEMENTS,
            max_cacheable_statement_size=0,
        )
        try:
            await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        if self.is_pooled:  # asyncpg would switch `jit` off for the session, which is not ours, to learn about types
            connection._server_caps = connection._server_caps._replace(jit=False)  # noqa: SLF001  # no public way
        else:
            await connection.execute(LIMIT_SESSION)
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=_read_json)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread; None in a forked process, where its parent's seems to run."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class _Idle:
    """A connection that nobody uses, and since when."""

    connection: asyncpg.Connection
    since: float


def _is_unusable(error: BaseException) -> bool:
    """Whether an answer may still be on its way: somebody stopped waiting for it."""
    return isinstance(error, asyncio.CancelledError | TimeoutError | GeneratorExit) or is_connection_lost(error)


def _read_json(written: str) -> object:
    """Parse a jsonb value; most columns of most rows are empty, and a parser call for each would be felt."""
    if written in {"{}", "[]"}:
        return {} if written == "{}" else []
    return json.loads(written)
