"""Makes engines, with the service's session settings: the pool that intents run over, and one for migrations."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ExceptionContext, NullPool, event
from sqlalchemy.engine.interfaces import AdaptedConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.db.connection.address import Address
from app.db.connection.failures import READ_ONLY, sqlstate

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 8.0
"""How long we wait for a statement's answer: longer than the server allows any, so only a dead network gets here."""

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

    A statement without an answer after `answer_seconds` has failed; a connection older than `recycle_seconds` is made
    anew (-1: never).
    """

    size: int
    timeout_seconds: float
    answer_seconds: float = ANSWER_TIMEOUT_SECONDS
    recycle_seconds: int = -1


def make_engine(address: Address, pool: PoolConfig) -> AsyncEngine:
    """Return an engine with a fixed-size pool.

    Connections are not pinged before use: that would cost a round trip for every intent, while a connection that
    died is noticed by its first statement and the intent is run again on a new one.
    """
    engine = create_async_engine(
        address.url,
        connect_args={**_arguments(address, SESSION_SETTINGS), "command_timeout": pool.answer_seconds},
        hide_parameters=True,
        json_deserializer=_read_json,
        pool_size=pool.size,
        max_overflow=0,
        pool_timeout=pool.timeout_seconds,
        pool_use_lifo=True,
        pool_recycle=pool.recycle_seconds,
        skip_autocommit_rollback=True,
    )
    event.listen(engine.sync_engine, "handle_error", _drop_read_only)
    event.listen(engine.sync_engine, "connect", _limit_transactions)
    return engine


def make_maintenance_engine(address: Address) -> AsyncEngine:
    """Return an engine without a pool and without statement timeouts, for migrations."""
    settings = {"application_name": "throughline migration", "timezone": "UTC", "jit": "off"}
    return create_async_engine(
        address.url, connect_args=_arguments(address, settings), hide_parameters=True, poolclass=NullPool
    )


def _limit_transactions(connection: AdaptedConnection, record: object) -> None:
    del record
    connection.run_async(lambda driver: driver.execute(LIMIT_TRANSACTIONS))  # outside of any transaction


def _drop_read_only(context: ExceptionContext) -> None:
    """Treat the pool's connections as lost once one leads to a standby: only new ones find the new primary."""
    if sqlstate(context.original_exception) == READ_ONLY:
        context.is_disconnect = True


def _read_json(written: str) -> object:
    """Parse a jsonb value; most columns of most rows are empty, and a parser call for each would be felt."""
    if written in {"{}", "[]"}:
        return {} if written == "{}" else []
    return json.loads(written)


def _arguments(address: Address, settings: Mapping[str, str]) -> dict[str, object]:
    return {**address.extra, "server_settings": dict(settings), "timeout": CONNECT_TIMEOUT_SECONDS}
