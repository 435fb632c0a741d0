"""Migrations: up and down, one at a time, and in step with the table models."""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection
from sqlalchemy.ext.asyncio import create_async_engine

from fakes.dump_programs import find_dump_programs
from fakes.pooler import urls_of
from fakes.programs import ROOT
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.connection.migrations import UNRELEASED, downgrade, head_revision, is_known, status, upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.service_status import read_service_status
from throughline.db.tables import METADATA
from throughline.domain.errors import DatabaseUnusable

PUBLIC = "'public'::regnamespace"
LOCKS = """
    select from pg_locks join pg_database on pg_database.oid = database
    where locktype = 'advisory' and datname = current_database()
"""
UPGRADE = (
    "import asyncio, sys; from throughline.db.connection.migrations import upgrade; asyncio.run(upgrade(sys.argv[1]))"
)
NAME_IN_USE = "create table users (id uuid); drop table users"
"""Whoever creates a table of this name waits for the end of the transaction."""

WAITING = f"select 1 from {BACKENDS} where application_name = 'throughline migration' and wait_event_type = 'Lock'"


async def test_the_schema_goes_up_down_and_up_again(empty_database_url: str) -> None:
    assert (await status(empty_database_url)).current is None

    await upgrade(empty_database_url)
    went_up = await status(empty_database_url)
    await downgrade(empty_database_url, "base")
    left = await run_sql(
        empty_database_url, "select relname::text from pg_class where relnamespace = 'public'::regnamespace"
    )
    functions = await run_sql(
        empty_database_url,
        "select proname from pg_proc p where pronamespace = 'public'::regnamespace "
        "and not exists (select 1 from pg_depend d where d.objid = p.oid and d.deptype = 'e')",  # an extension's
    )
    await upgrade(empty_database_url)

    assert went_up.is_current
    assert {name for (name,) in left} <= {"alembic_version", "alembic_version_pkc"}
    assert functions == []
    assert (await status(empty_database_url)).is_current


async def test_the_migrated_schema_is_what_the_models_describe(database_url: str) -> None:

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": METADATA}
        )
        return list(compare_metadata(context, METADATA))

    engine = create_async_engine(parse_address(database_url).url)
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)
    await engine.dispose()

    assert found == []


async def test_checks_and_unlogged_tables_are_what_the_models_describe(database_url: str) -> None:
    checks = await run_sql(
        database_url,
        f"select conname::text from pg_constraint where contype = 'c' and connamespace = {PUBLIC}",
    )
    unlogged = await run_sql(
        database_url,
        f"select relname::text from pg_class where relpersistence = 'u' and relkind = 'r' and relnamespace = {PUBLIC}",
    )

    constraints = [constraint for table in METADATA.tables.values() for constraint in table.constraints]
    named = {str(constraint.name) for constraint in constraints if isinstance(constraint, CheckConstraint)}
    assert {name for (name,) in checks} == named
    assert sorted(unlogged) == [("processes",), ("run_events",)]


async def test_the_models_alone_make_the_migrated_schema(database_url: str, empty_database_url: str) -> None:
    programs = await find_dump_programs(database_url)
    if programs is None:
        pytest.skip("no pg_dump here is as new as the server")
    engine = create_async_engine(parse_address(empty_database_url).url)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()

    assert await programs.schema(database_url) == await programs.schema(empty_database_url)


async def test_many_processes_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_database_url) for _ in range(3)))

    assert (await status(empty_database_url)).is_current
    assert await run_sql(empty_database_url, LOCKS) == []


async def test_a_schema_newer_than_this_version_is_refused_and_left_alone(database_url: str) -> None:
    await run_sql(database_url, "update alembic_version set version_num = '9999'")

    for refused in (upgrade(database_url), Database.open(DatabaseConfig(**urls_of(database_url)))):
        with pytest.raises(DatabaseUnusable, match="9999"):
            await refused
    assert (await status(database_url)).current == "9999"


@pytest.mark.parametrize("refused", [upgrade, status, read_service_status])
@pytest.mark.parametrize("revision", ["0001", "0025", "0045"])
async def test_a_schema_that_was_never_released_is_refused_with_what_to_do(
    database_url: str, refused: Callable[[str], Awaitable[object]], revision: str
) -> None:
    await run_sql(database_url, "update alembic_version set version_num = $1", revision)

    for attempt in (refused(database_url), Database.open(DatabaseConfig(**urls_of(database_url)))):
        with pytest.raises(DatabaseUnusable, match=rf"revision {revision}.*before the first release.*sessions export"):
            await attempt


async def test_no_migration_has_the_revision_of_an_unreleased_schema() -> None:
    assert not any(is_known(revision) for revision in UNRELEASED)


async def test_a_migration_that_is_killed_half_way_is_run_again(empty_database_url: str) -> None:
    async with hold_rows(empty_database_url, NAME_IN_USE):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", UPGRADE, empty_database_url, env={**os.environ, "PYTHONPATH": str(ROOT / "app")}
        )
        await until_sql(empty_database_url, WAITING)
        process.kill()
        await process.wait()

    async with asyncio.timeout(HANG_SECONDS):
        await upgrade(empty_database_url)

    assert (await status(empty_database_url)).is_current


async def test_an_unmigrated_database_is_not_ready_and_says_what_to_do(empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="throughline db upgrade"):
        await Database.open(DatabaseConfig(**urls_of(empty_database_url)))


async def test_a_database_that_loses_its_schema_is_not_ready(database: Database, database_url: str) -> None:
    await database.check_ready()
    await run_sql(database_url, "delete from alembic_version")

    with pytest.raises(DatabaseUnusable, match=head_revision()):
        await database.check_ready()


async def test_migrating_leaves_logging_as_it_was(empty_database_url: str) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("sqlalchemy.engine").level, log_state())

    await upgrade(empty_database_url)

    assert (root.level, list(root.handlers), logging.getLogger("sqlalchemy.engine").level, log_state()) == before


def log_state() -> list[bool]:
    return [logging.getLogger(name).disabled for name in ("throughline", "uvicorn", "asyncio")]
