"""Schema migrations: upgrade to the newest revision under a lock, downgrade, and status."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from alembic import command
from throughline.db.connection.address import Address, parse_address
from throughline.db.connection.connector import Connector
from throughline.db.connection.failures import DRIVER_ERRORS, LOCK_NOT_FREE, ROLLED_BACK, explain, sqlstate
from throughline.db.connection.migration_lock import migration_lock
from throughline.db.connection.pool import SESSION_SETTINGS
from throughline.domain.errors import DatabaseUnusable

OLDEST_SERVER = 150_000
PAUSES_SECONDS = (1.0, 4.0)
"""Pauses before a migration is run again."""

_REPEATED = ROLLED_BACK | {LOCK_NOT_FREE}
"""SQLSTATEs after which a migration is run again. A lock may be held by a process that was just killed."""

UNRELEASED = frozenset(f"{number:04}" for number in range(1, 47))
"""Revisions of development versions, whose databases cannot be upgraded."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The database's schema revision (None: no schema yet) and the newest revision that this version knows."""

    current: str | None
    head: str

    @property
    def is_current(self) -> bool:
        """Whether the schema needs no upgrade."""
        return self.current == self.head


async def upgrade(url: str) -> None:
    """Upgrade the schema to the newest revision; concurrent callers wait for each other.

    Raises DatabaseUnavailable. Raises DatabaseUnusable if the server is too old or refuses access, or if the schema is
    newer than this version or from an unreleased version.
    """
    if (await status(url)).is_current:
        return
    async with locked_connection(url) as connection:
        found = await connection.run_sync(_status)
        check_known(found.current)
        if not found.is_current:
            await _upgrade(connection)


async def downgrade(url: str, revision: str) -> None:
    """Downgrade to an earlier revision (`base`: no schema at all); data in later tables is lost."""
    async with locked_connection(url) as connection:
        await connection.run_sync(_alembic, lambda config: command.downgrade(config, revision))


async def status(url: str) -> MigrationStatus:
    """Return the schema's current revision and the newest known one.

    Raises DatabaseUnavailable, or DatabaseUnusable, also for an unreleased schema.
    """
    async with _engine(url) as engine, engine.connect() as connection:
        return await connection.run_sync(_status)


@asynccontextmanager
async def locked_connection(url: str) -> AsyncGenerator[AsyncConnection]:
    """Yield a connection that holds the migration lock, after checking the server's version.

    Raises DatabaseUnusable if the server is too old, DatabaseUnavailable as migration_lock does.
    """
    async with _engine(url) as engine, engine.connect() as connection:
        await _check_server(connection)
        await connection.commit()
        async with migration_lock(engine):
            try:
                yield connection
            finally:
                await connection.rollback()


@cache
def head_revision() -> str:
    """Return the newest revision among the migration scripts."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "there is at least one migration"
    return head


def is_known(revision: str) -> bool:
    """Whether one of this version's migration scripts has the revision.

    If not, the revision is from a newer version or one of UNRELEASED.
    """
    return revision in _known_revisions()


def check_released(current: str | None) -> None:
    """Raise DatabaseUnusable if the revision is from a version that was never released."""
    if current in UNRELEASED:
        raise DatabaseUnusable(
            f"The database has schema revision {current}, made by a version before the first release, which this "
            "version cannot upgrade. Export what is to be kept with the version that made it "
            "(`throughline sessions export`) and import it into a new database, or start with a new one."
        )


def check_known(current: str | None) -> None:
    """Raise DatabaseUnusable if no migration script of this version has the revision; None (no schema) is accepted."""
    check_released(current)
    if current is not None and not is_known(current):
        raise DatabaseUnusable(
            f"The database has schema revision {current}, which is newer than this version's {head_revision()}. "
            "Start the newer version of Throughline, or restore the database as it was before the upgrade."
        )


@cache
def _known_revisions() -> frozenset[str]:
    """Return the revisions of all migration scripts; cached, since reading them takes milliseconds."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


@asynccontextmanager
async def _engine(url: str) -> AsyncGenerator[AsyncEngine]:
    """Yield an engine; failures of its connections inside the block are raised as the service's errors."""
    engine = _make_engine(parse_address(url))
    try:
        yield engine
    except DRIVER_ERRORS as error:
        raise explain(error).error from None
    finally:
        await engine.dispose()


def _make_engine(address: Address) -> AsyncEngine:
    """Return an SQLAlchemy engine for migrations, without a pool and without statement timeouts.

    A statement ends soon after its process was killed, since the next process then goes on.
    """
    settings = {
        "application_name": "throughline migration",
        "timezone": "UTC",
        "jit": "off",
        "client_connection_check_interval": SESSION_SETTINGS["client_connection_check_interval"],
    }
    connect = partial(Connector(address).connect, server_settings=settings)
    return create_async_engine(address.url, async_creator=connect, hide_parameters=True, poolclass=NullPool)


async def _check_server(connection: AsyncConnection) -> None:
    number = int((await connection.execute(text("show server_version_num"))).scalar_one())
    if number < OLDEST_SERVER:
        raise DatabaseUnusable(
            f"The server is PostgreSQL {number // 10_000}. PostgreSQL {OLDEST_SERVER // 10_000} or newer is needed."
        )


async def _upgrade(connection: AsyncConnection) -> None:
    """Run the missing migrations. One that met a lock, or a conflict with other transactions, is run again."""
    for pause in (*PAUSES_SECONDS, None):
        try:
            await connection.run_sync(_alembic, lambda config: command.upgrade(config, "head"))
        except DBAPIError as error:
            await connection.rollback()
            if pause is None or sqlstate(error) not in _REPEATED:
                raise
            await asyncio.sleep(pause)
        else:
            return


def _status(connection: Connection) -> MigrationStatus:
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    check_released(current)
    return MigrationStatus(current=current, head=head_revision())


def _alembic(connection: Connection, run: Callable[[Config], T]) -> T:
    config = _config()
    config.attributes["connection"] = connection
    result = run(config)
    connection.commit()
    return result


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@cache
def _scripts() -> Path:
    """Find the migration scripts: inside the installed package, or next to it in a checkout.

    Next to an installed package, `alembic` could be the library, so the folder is recognised by its env.py.
    """
    package = Path(__file__).parents[2]
    for folder in (package / "db" / "migration_scripts", package.parents[1] / "alembic"):
        if (folder / "env.py").is_file():
            return folder
    raise DatabaseUnusable(f"The migration scripts are missing beside {package}. Install Throughline again.")
