"""The configured database: opening it, and administering it from the command line."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from throughline.assembly.env_file import read_program_settings
from throughline.assembly.front_ends import storages
from throughline.cli.dependencies import DatabaseStatus, LocalOptions
from throughline.db.connection.migrations import status, upgrade
from throughline.db.connection.replica import ReplicaConfig
from throughline.db.database import (
    Database,
    DatabaseConfig,
    DatabaseLocation,
    open_address,
    open_database,
    open_direct_address,
)
from throughline.db.memories import prepare_vectors
from throughline.db.service_status import read_service_status
from throughline.domain.service_status import ProcessKind, ServiceStatus
from throughline.logs import set_up_logging
from throughline.settings import Settings


def database_location(settings: Settings) -> DatabaseLocation:
    """Return the location of the database that the settings name."""
    return DatabaseLocation(
        settings.database_url, settings.data_dir, settings.database_direct_url, settings.database_listen
    )


def is_guest(settings: Settings, kind: ProcessKind) -> bool:
    """Return whether the process is a command on a database server that others operate.

    Such a command does no work there except its own.
    """
    return kind is ProcessKind.COMMAND and bool(settings.database_url)


def may_migrate(settings: Settings, kind: ProcessKind) -> bool:
    """Return whether the process may upgrade the schema: MIGRATE_ON_START allows it, and `is_guest` is false."""
    return settings.migrate_on_start and not is_guest(settings, kind)


def open_configured_database(settings: Settings, kind: ProcessKind) -> AbstractAsyncContextManager[Database]:
    """Open the database that the settings name; close it with the context. Raises the errors of open_database."""
    return open_database(database_location(settings), database_config(settings), migrate=may_migrate(settings, kind))


def database_config(settings: Settings) -> DatabaseConfig:
    """Return a process's share of the database's resources."""
    return DatabaseConfig(
        url=settings.database_url,
        direct_url=settings.database_direct_url,
        listens=settings.database_listen,
        pool_size=settings.db_pool_size,
        pool_timeout_seconds=settings.db_pool_timeout_seconds,
        caps=settings.caps,
        search_language=settings.search_language,
        loaded_rows_bytes=settings.loaded_rows_bytes,
        keeps_costs_of_erased_users=settings.keep_costs_of_erased_users,
        front_ends=storages(),
        replica=replica_config(settings),
    )


def replica_config(settings: Settings) -> ReplicaConfig | None:
    """Return the replica for reads that may be late, None without one."""
    if not settings.database_read_url:
        return None
    return ReplicaConfig(settings.database_read_url, settings.database_read_max_lag_seconds)


def read_quiet_settings(options: LocalOptions) -> Settings:
    """Return the settings for a command at a terminal, and limit its logs to errors, on standard error."""
    settings = read_program_settings(options.data_dir)
    set_up_logging("ERROR", settings.log_format)
    return settings


@asynccontextmanager
async def open_for_command(options: LocalOptions) -> AsyncGenerator[Database]:
    """Yield the configured database, which is open as long as the context."""
    async with open_configured_database(read_quiet_settings(options), ProcessKind.COMMAND) as database:
        yield database


async def upgrade_database(options: LocalOptions) -> None:
    """Upgrade the schema to the newest revision, and create the tables for vectors if an embedding model is set."""
    settings = read_quiet_settings(options)
    async with open_direct_address(database_location(settings)) as url:
        await upgrade(url)
        if settings.embedding_model:
            await prepare_vectors(url, may_create=True)


async def service_status(options: LocalOptions) -> ServiceStatus:
    """Return the state of the processes on this database and of waiting work.

    Nothing is written, and no database is created.
    """
    settings = read_quiet_settings(options)
    where = database_location(settings)
    async with open_direct_address(where, may_create=False) as url:
        found = await read_service_status(url, storages(), replica_config(settings))
        return replace(found, database=where.description)


async def database_address(options: LocalOptions) -> str:
    """Return the address at which this user's other programs reach the database. It contains the password."""
    async with open_address(database_location(read_quiet_settings(options))) as urls:
        return urls.url.replace("postgresql+asyncpg://", "postgresql://", 1)


async def database_status(options: LocalOptions) -> DatabaseStatus:
    """Return the schema revision of the database and the newest one that this version has."""
    async with open_direct_address(database_location(read_quiet_settings(options))) as url:
        found = await status(url)
    return DatabaseStatus(current=found.current, head=found.head, is_current=found.is_current)
