"""The lock under which one process at a time migrates a database.

It is a row of the table `alembic_version` that is inserted in a transaction of a second connection and never committed:
nobody else sees it, and an insert of the same key waits. So it needs no session lock, holds behind a pooler in
transaction mode, and ends with its holder's connection, also if that is killed. A session's advisory lock does neither.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from throughline.db.connection.failures import DRIVER_ERRORS, KEY_TAKEN, LOCK_NOT_FREE, ROLLED_BACK, sqlstate
from throughline.domain.errors import DatabaseUnavailable
from throughline.execution.error_boundary import running_concurrently

TIMEOUT_SECONDS = 60.0
CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.1
_LIMITS = (
    text("select set_config('lock_timeout', '50ms', true)"),
    text("select set_config('idle_in_transaction_session_timeout', '0', true)"),
)
"""A waiting insert ends soon, since it would block concurrent index builds. A held lock may be idle for long."""

_TAKE = text("insert into alembic_version (version_num) values ('migration lock')")
_CREATE = text(
    "create table if not exists alembic_version "
    "(version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))"
)
"""The table as Alembic would create it."""

_HAS_NO_TABLE = "42P01"
_IS_TAKEN = ROLLED_BACK | {LOCK_NOT_FREE, KEY_TAKEN, "42P07"}
"""SQLSTATEs of a lock that another process holds, or of a table that another process creates."""


@asynccontextmanager
async def migration_lock(engine: AsyncEngine) -> AsyncGenerator[None]:
    """Hold the lock inside the block, on a connection of its own.

    Raises DatabaseUnavailable if the lock is not free within TIMEOUT_SECONDS, or if its connection is lost, which ends
    the block.
    """
    async with engine.connect() as holder:
        await _take(holder)
        async with _watched(holder):
            yield


@asynccontextmanager
async def _watched(holder: AsyncConnection) -> AsyncGenerator[None]:
    limit = asyncio.timeout(None)
    try:
        async with limit, running_concurrently(lambda: _watch(holder, limit), "watch the migration lock"):
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise DatabaseUnavailable(
            "The connection that held the migration lock was lost, and the migration was stopped. Try again."
        ) from None


async def _take(holder: AsyncConnection) -> None:
    ends_at = time.monotonic() + TIMEOUT_SECONDS
    while not await _tries(holder):
        if time.monotonic() > ends_at:
            raise DatabaseUnavailable(
                f"Another process has been migrating this database for {TIMEOUT_SECONDS:g} seconds. Try again later."
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _tries(holder: AsyncConnection) -> bool:
    """Try to insert the row; return whether it was inserted. If there is no table yet, create it for the next try."""
    try:
        for limit in _LIMITS:
            await holder.execute(limit)
        await holder.execute(_TAKE)
    except DBAPIError as error:
        await holder.rollback()
        if sqlstate(error) == _HAS_NO_TABLE:
            await _create_table(holder)
        elif sqlstate(error) not in _IS_TAKEN:
            raise
        return False
    return True


async def _create_table(holder: AsyncConnection) -> None:
    try:
        await holder.execute(_CREATE)
        await holder.commit()
    except DBAPIError as error:
        await holder.rollback()
        if sqlstate(error) not in _IS_TAKEN:
            raise


async def _watch(holder: AsyncConnection, limit: asyncio.Timeout) -> None:
    """Test the connection again and again; end the time limit once it is lost."""
    try:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await holder.execute(text("select 1"))
    except DRIVER_ERRORS:
        limit.reschedule(asyncio.get_running_loop().time())
