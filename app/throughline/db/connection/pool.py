"""The service's own connection pool over asyncpg connections, with the limits of limits.py.

asyncpg's pool returns each connection in a separate task, which takes longer than a statement does.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import Address
from throughline.db.connection.connector import CONNECT_TIMEOUT_SECONDS, Connector
from throughline.db.connection.failures import PoolTimeout, is_connection_lost, is_stale_plan
from throughline.domain.errors import DatabaseUnusable
from throughline.ports.tracing import StepPart, traced

SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": "throughline",
    "timezone": "UTC",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "enable_mergejoin": "off",
    "statement_timeout": "7s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "4s",
    "client_connection_check_interval": "1s",
}
"""Settings of each connection that is not behind a pooler.

Transactions wait for nothing but the database. So one that is idle for 4 s belongs to a stopped process, and the server
ends it. With `client_connection_check_interval` a statement ends within a second after its connection was closed. To
estimate merge joins, the planner would read both ends of the joined indexes, and no plan that is kept is faster by one.
"""

POOLED_SETTINGS: Mapping[str, str] = {"application_name": SESSION_SETTINGS["application_name"]}
"""The only setting sent when connecting to a pooler: its server connections are shared and keep no others."""

_LIMIT_TRANSACTIONS = (
    "select set_config('transaction_timeout', '20s', {}) where current_setting('server_version_num')::int >= 170000"
)
"""SQL by which PostgreSQL 17 or newer ends a transaction after 20 s; `{}` is `true` for the current transaction only.

It ends the transaction of a process that stopped while it sent a statement. PostgreSQL does not count such a
transaction as idle, but it holds locks.
"""

LIMIT_SESSION = _LIMIT_TRANSACTIONS.format("false")
"""Statement that sets the 20 s limit, sent once on each connection that is not behind a pooler.

As a startup parameter, PostgreSQL before 17 would refuse the setting.
"""

BEGIN = "begin"
BEGIN_LIMITED = "; ".join([
    BEGIN,
    *(f"set local {name} = '{value}'" for name, value in SESSION_SETTINGS.items() if name not in POOLED_SETTINGS),
    _LIMIT_TRANSACTIONS.format("true"),
])
"""SQL that begins a transaction behind a pooler and sets its limits, sent as one message.

The limits end with the transaction.
"""
BEGIN_READ_ONLY = "begin isolation level read committed read only"


Row: TypeAlias = Mapping[str, Any]  # Any: the reader of a column knows its type
"""A result row by column name: asyncpg's Record."""

_NAMED = re.compile(r"(?<![:\w]):(\w+)")
"""A `:name` parameter, but not the type in `value::type`."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement. `text` has the parameters `$1`, `$2`…; `names` lists their names in that order.

    A connection keeps a statement prepared if `is_cached`. From the sixth execution on, PostgreSQL may then run it by a
    plan that it made without looking at the parameters. A statement that is not cached is planned for its parameters at
    each execution, and may take `answer_seconds` instead of the pool's.
    """

    text: str
    names: tuple[str, ...]
    is_cached: bool = True
    answer_seconds: float | None = None

    def arguments(self, parameters: Mapping[str, object]) -> list[object]:
        """Return the parameters' values in the order of `names`. Raises KeyError if one is missing."""
        return [parameters[name] for name in self.names]


def statement(written: str) -> Statement:
    """Return the statement for SQL text with `:name` parameters, which become `$1`, `$2`…."""
    names = tuple(dict.fromkeys(_NAMED.findall(written)))
    places = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return Statement(_NAMED.sub(lambda found: places[found[1]], written), names)


ANSWER_TIMEOUT_SECONDS = 8.0
"""Client-side limit for a statement's answer. It exceeds the server's limits, so only a dead network reaches it."""

CLOSE_TIMEOUT_SECONDS = 5.0
CLOSED = (
    "The connections to the database are closed. With `throughline.client`, use a client only inside the `async with` "
    "block of its `connect`."
)
OTHER_LOOP = (
    "The connections to the database belong to another event loop, or to the process that this one was forked from. "
    "Open a client with `connect` in each loop and each process; this one still works where it was opened."
)
WAIT_FOR_CONNECTION = StepPart("wait for connection")
CACHED_STATEMENTS = 200
"""Size of each connection's prepared statement cache; the service has fewer statements."""


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """The pool's most connections, and how long to wait for a free one.

    A statement without an answer after `answer_seconds` has failed. A connection that was idle for `idle_seconds` is
    not used again. Connecting to one host may take `connect_seconds`. `is_read_only`: transactions cannot write.
    """

    size: int
    timeout_seconds: float
    answer_seconds: float = ANSWER_TIMEOUT_SECONDS
    idle_seconds: float = float("inf")
    connect_seconds: float = CONNECT_TIMEOUT_SECONDS
    is_read_only: bool = False


class ConnectionPool:
    """A pool of up to `size` connections, opened when first needed; the most recently used one is reused first.

    Connections are neither pinged before use nor reset afterwards, which would cost a round trip each. A broken
    connection is noticed by its first statement, and the transaction is repeated on a new one. Transactions change no
    session settings.
    """

    def __init__(self, address: Address, config: PoolConfig) -> None:
        """Prepare the pool; the first use of `connection` connects."""
        self._address = address
        self._connector = Connector(address)
        self._config = config
        self._free = asyncio.Semaphore(config.size)
        self._idle: list[_Idle] = []
        self._generation = 0
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_pooled(self) -> bool:
        """Whether a connection pooler precedes the server, so that each transaction may use another connection."""
        return self._address.is_pooled

    @property
    def begin(self) -> str:
        """The SQL text that begins a transaction."""
        begin = BEGIN_LIMITED if self.is_pooled else BEGIN
        return begin.replace(BEGIN, BEGIN_READ_ONLY, 1) if self._config.is_read_only else begin

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[asyncpg.Connection]:
        """Yield a connection for exclusive use inside the block.

        A connection that may still be busy or is broken is closed afterwards. After a lost connection, a statement
        without an answer or an outdated plan all other connections are replaced, too. Raises DRIVER_ERRORS, of which
        PoolTimeout means that all connections stayed in use. Raises DatabaseUnusable if the pool is closed or used in
        another event loop than at first.
        """
        await self._reserve()
        try:
            generation, connection = self._generation, self._acquire() or await self._connect()
            try:
                yield connection
            except BaseException as error:
                if _is_unusable(error):
                    connection.terminate()
                if generation == self._generation and _is_shared(error):
                    self._discard_all()
                raise
            finally:
                self._release(connection, is_good=generation == self._generation)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close all connections; those in use are closed after their use."""
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
            with traced(WAIT_FOR_CONNECTION):
                async with asyncio.timeout(self._config.timeout_seconds):
                    await self._free.acquire()
        except TimeoutError:
            raise PoolTimeout from None

    def _check_loop(self) -> None:
        """Raise DatabaseUnusable unless the running event loop is the one in which the pool was first used."""
        loop = _running_loop()
        self._loop = self._loop or loop
        if loop is None or loop is not self._loop:
            raise DatabaseUnusable(OTHER_LOOP)

    def _acquire(self) -> asyncpg.Connection | None:
        """Return the most recently used idle connection, None if there is none that may be used."""
        while self._idle:
            one = self._idle.pop()
            if one.connection.is_closed():
                continue
            if time.monotonic() - one.since < self._config.idle_seconds:
                return one.connection
            one.connection.terminate()
        return None

    def _release(self, connection: asyncpg.Connection, *, is_good: bool) -> None:
        if connection.is_closed():  # is_in_transaction() would raise and hide the original error
            return
        if self._is_closed or not is_good or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(_Idle(connection, time.monotonic()))

    def _discard_all(self) -> None:
        """Close the idle connections now, and those in use when they are released.

        They share the failure: only new connections reach a new server or see a changed schema.
        """
        self._generation += 1
        while self._idle:
            self._idle.pop().connection.terminate()

    async def _connect(self) -> asyncpg.Connection:
        connection = await self._connector.connect(
            server_settings=dict(POOLED_SETTINGS if self.is_pooled else SESSION_SETTINGS),
            timeout=self._config.connect_seconds,
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
        if self.is_pooled:  # else asyncpg switches `jit` off in the shared session to read types
            connection._server_caps = connection._server_caps._replace(jit=False)  # noqa: SLF001  # no public way
        else:
            await connection.execute(LIMIT_SESSION)
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=_read_json)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return this thread's event loop; None in a forked process, although the parent's loop seems to run there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class _Idle:
    """An idle connection and the time of its last use."""

    connection: asyncpg.Connection
    since: float


def _is_unusable(error: BaseException) -> bool:
    """Whether the connection must be closed: it is lost, or the answer to an abandoned statement may still arrive."""
    return isinstance(error, asyncio.CancelledError | TimeoutError | GeneratorExit) or is_connection_lost(error)


def _is_shared(error: BaseException) -> bool:
    """Whether the other connections have the same failure: the server is away, does not answer or has another schema.

    Only a dead network or server leaves a statement without an answer, see ANSWER_TIMEOUT_SECONDS. Without this, each
    of the idle connections would keep one request waiting as long again.
    """
    return isinstance(error, TimeoutError) or is_connection_lost(error) or is_stale_plan(error)


def _read_json(written: str) -> object:
    """Parse the text of a json or jsonb value. Most values are empty, so the parser is skipped for `{}` and `[]`."""
    if written in {"{}", "[]"}:
        return {} if written == "{}" else []
    return json.loads(written)
