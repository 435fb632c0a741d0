"""Migrations: up and down, one at a time, and in step with the table models."""

import asyncio
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, Connection, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from fakes.conversations import open_conversation
from fakes.pooler import environment_of, urls_of
from fakes.programs import ROOT, find_dump_programs
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.run_folder import memory_folder
from fakes.service_process import kill_programs_using, start_program
from fakes.shared_server import INSERTED, DatabasePool, new_migrated_database
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS, until_found
from throughline.assembly.front_ends import import_tables
from throughline.db.connection.address import parse_address
from throughline.db.connection.migrations import (
    UNRELEASED,
    downgrade,
    head_revision,
    is_known,
    locked_connection,
    status,
    upgrade,
)
from throughline.db.database import Database, DatabaseConfig
from throughline.db.memories import prepare_vectors
from throughline.db.service_status import read_service_status
from throughline.db.tables import METADATA
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

PUBLIC = "'public'::regnamespace"
PARTITIONS = "select relname::text from pg_class where relispartition and relkind = 'r'"
HELD = "select version_num from alembic_version"
UPGRADE = (
    "import asyncio, sys; from throughline.db.connection.migrations import upgrade; asyncio.run(upgrade(sys.argv[1]))"
)
NAME_IN_USE = "create table users (id uuid); drop table users"
"""A transaction that creates a table of this name waits for the end of this one."""

MIGRATING = f"select 1 from {BACKENDS} where application_name = 'throughline migration'"
WAITING = f"{MIGRATING} and wait_event_type = 'Lock'"


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
    import_tables()

    partitions = {str(name) for (name,) in await run_sql(database_url, PARTITIONS)}

    def is_compared(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name not in partitions

    def differences(connection: Connection) -> list[object]:
        compared = {"compare_type": True, "compare_server_default": True, "include_name": is_compared}
        context = MigrationContext.configure(connection, opts={**compared, "target_metadata": METADATA})
        return list(compare_metadata(context, METADATA))

    engine = create_async_engine(parse_address(database_url).url)
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)
    await engine.dispose()

    assert found == []


async def test_checks_and_unlogged_tables_are_what_the_models_describe(database_url: str) -> None:
    import_tables()
    checks = await run_sql(
        database_url,
        f"select conname::text from pg_constraint where contype = 'c' and connamespace = {PUBLIC}",
    )
    unlogged = await run_sql(
        database_url,
        "select distinct coalesce(i.inhparent, c.oid)::regclass::text from pg_class c "
        "left join pg_inherits i on i.inhrelid = c.oid "
        f"where c.relpersistence = 'u' and c.relkind = 'r' and c.relnamespace = {PUBLIC}",
    )
    logged_events = await run_sql(
        database_url, f"{PARTITIONS} and relname like 'run_events%' and relpersistence <> 'u'"
    )

    constraints = [constraint for table in METADATA.tables.values() for constraint in table.constraints]
    named = {str(constraint.name) for constraint in constraints if isinstance(constraint, CheckConstraint)}
    assert {name for (name,) in checks} == named
    assert sorted(unlogged) == [("processes",), ("run_events",)]
    assert logged_events == []


async def test_the_models_alone_make_the_migrated_schema(database_url: str, empty_database_url: str) -> None:
    programs = await find_dump_programs(database_url)
    if programs is None:
        pytest.skip("no pg_dump here is as new as the server")
    import_tables()
    engine = create_async_engine(parse_address(empty_database_url).url)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()

    assert await programs.schema(database_url) == await programs.schema(empty_database_url)


async def test_many_processes_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    await asyncio.gather(*(upgrade(empty_database_url) for _ in range(3)))

    assert (await status(empty_database_url)).is_current
    assert await run_sql(empty_database_url, HELD) == [(head_revision(),)]


async def start_upgrade(url: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app")}
    return await asyncio.create_subprocess_exec(sys.executable, "-c", UPGRADE, url, env=environment)


async def test_of_two_processes_that_migrate_the_second_goes_on_where_the_first_is_killed(
    empty_database_url: str,
) -> None:
    async with hold_rows(empty_database_url, NAME_IN_USE):
        first = await start_upgrade(empty_database_url)
        await until_sql(empty_database_url, WAITING)
        second = await start_upgrade(empty_database_url)
        await until_sql(empty_database_url, f"{MIGRATING} offset 3")
        first.kill()
        await first.wait()

    async with asyncio.timeout(HANG_SECONDS):
        assert await second.wait() == 0
    assert (await status(empty_database_url)).is_current


async def test_a_migration_whose_lock_is_lost_is_stopped(empty_database_url: str) -> None:
    async def lose_lock() -> None:
        async with locked_connection(empty_database_url), asyncio.timeout(HANG_SECONDS):
            await run_sql(
                empty_database_url,
                f"select pg_terminate_backend(pid) from {BACKENDS} where state = 'idle in transaction'",
            )
            await asyncio.Event().wait()

    with pytest.raises(DatabaseUnavailable, match="migration lock was lost"):
        await lose_lock()

    await upgrade(empty_database_url)
    assert (await status(empty_database_url)).is_current


async def test_an_upgraded_database_is_asked_and_not_locked(database_url: str) -> None:
    async with locked_connection(database_url), asyncio.timeout(HANG_SECONDS):
        await upgrade(database_url)

    assert (await status(database_url)).is_current


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
        process = await start_upgrade(empty_database_url)
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


RELATIONS = """
    select oid::regclass::text from pg_class where relkind in ('r', 'p', 'm') and relnamespace not in
        (select oid from pg_namespace where nspname in ('pg_catalog', 'pg_toast', 'information_schema'))
"""
"""All that can hold rows, in whatever schema."""

SEQUENCES = "select seqrelid::regclass::text from pg_sequence where pg_sequence_last_value(seqrelid) is not null"


@pytest.fixture
async def pool(server_url: str, template_name: str) -> AsyncIterator[DatabasePool]:
    opened = DatabasePool(server_url, template_name)
    yield opened
    await opened.close()


async def filled(url: str) -> set[str]:
    """Return the tables that hold rows and the sequences that were drawn from."""
    names = [str(row[0]) for row in await run_sql(url, RELATIONS)]
    holding = {name for name in names if await run_sql(url, f"select from {name} limit 1")}
    return holding | {str(row[0]) for row in await run_sql(url, SEQUENCES)}


async def leave_rows(url: str) -> None:
    """Do what tests do: converse, submit, and put jobs in line; no pooler, whose connections would stay."""
    database = await Database.open(DatabaseConfig(url, pool_size=2))
    conversation = await open_conversation(database)
    await (await open_stage(database)).turn("hello")
    await run_sql(url, "insert into slack_users values ('T1', 'U1', $1, 'unlinked')", conversation.owner_id)
    await run_sql(url, "insert into jobs (kind, subject) values ('x', '1')")
    await database.close()


async def test_an_emptied_database_is_as_a_new_one(pool: DatabasePool) -> None:
    url = await pool.take()
    new = await filled(url)
    await leave_rows(url)
    before = await filled(url)

    await pool.give_back(url)

    assert {"users", "sessions", "messages", "runs", "run_events", "slack_users", "runs_seq_seq"} <= before - new
    assert await pool.take() == url
    assert await filled(url) == new == {"alembic_version"}
    await pool.give_back(url)


async def test_all_that_can_hold_rows_is_emptied(database_url: str) -> None:
    emptied = {name for name, _ in await run_sql(database_url, INSERTED)}

    partitioned = {name for (name,) in await run_sql(database_url, "select relname from pg_class where relkind = 'p'")}

    assert {name for (name,) in await run_sql(database_url, RELATIONS)} - partitioned == emptied


async def test_a_database_in_which_somebody_was_left_is_not_used_again(pool: DatabasePool) -> None:
    """A program would connect again if it were only thrown out."""
    url = await pool.take()
    left = await asyncpg.connect(**parse_address(url).arguments())
    await left.execute("begin; insert into users (id, name) values (gen_random_uuid(), 'left')")

    await pool.give_back(url)

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await left.execute("commit")
    left.terminate()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await run_sql(url, "select 1")


async def test_leftover_programs_are_killed_with_their_database(database_url: str, tmp_path: Path) -> None:
    left = await start_program(tmp_path, environment_of(database_url), "worker", log=tmp_path / "log")

    await kill_programs_using("throughline_another")
    lives = left.returncode is None
    await kill_programs_using(str(parse_address(database_url).url.database))

    assert lives
    assert left.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "change",
    [
        "alter table runs rename to elsewhere",
        "alter table users rename column name to other",
        "alter table messages disable trigger user",
        "alter table runs add check (attempt < 5)",
        "create table more (id integer)",
        "create index more on users (created_at)",
        "create or replace function refuse_message_change() returns trigger language plpgsql as 'begin end'",
        "drop index api_keys_user_id_idx",
        "do $$ begin execute format('alter database %I set jit = on', current_database()); end $$",
        "analyze users",
        "insert into users (id, name) select gen_random_uuid(), n::text from generate_series(1, 80000) n",
        "drop table alembic_version",
        "delete from alembic_version",
    ],
)
async def test_a_database_in_which_more_than_rows_was_changed_is_not_used_again(
    pool: DatabasePool, change: str
) -> None:
    url = await pool.take()
    await run_sql(url, change)

    await pool.give_back(url)

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await run_sql(url, "select 1")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tl-", dir=memory_folder(), ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "data"


@pytest.mark.proof
async def test_a_database_is_not_used_again_once_its_server_has_crashed(data_dir: Path) -> None:
    """A server that crashes begins to count again, as if nothing had been written."""
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir, may_create_databases=True))
    pool = DatabasePool(server.url, await new_migrated_database(server.url, "throughline_template"))
    url = await pool.take()
    connection = await asyncpg.connect(**parse_address(url).arguments())
    await connection.execute("insert into users (id, name) values (gen_random_uuid(), 'left')")
    os.kill(connection.get_server_pid(), signal.SIGKILL)
    await until_found(lambda: answers(server.url))

    await pool.give_back(url)
    another = await pool.take()
    await server.stop()

    assert another != url


async def answers(url: str) -> bool:
    with suppress(asyncpg.PostgresError, OSError):
        return bool(await run_sql(url, "select 1"))
    return False


TABLE = "select to_regclass('memory_embeddings') is not null"


@pytest.mark.usefixtures("pgvector")
async def test_many_processes_that_start_at_once_make_one_table(database_url: str) -> None:
    await asyncio.gather(*(prepare_vectors(database_url, may_create=True) for _ in range(3)))

    assert await run_sql(database_url, TABLE) == [(True,)]


async def test_without_an_embedding_model_there_is_no_table(database: Database, database_url: str) -> None:
    await database.check_ready()

    assert await run_sql(database_url, TABLE) == [(False,)]


@pytest.mark.usefixtures("pgvector")
async def test_who_may_not_migrate_is_told_to(database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="throughline db upgrade"):
        await prepare_vectors(database_url, may_create=False)
    await prepare_vectors(database_url, may_create=True)
    await prepare_vectors(database_url, may_create=False)


@pytest.mark.usefixtures("pgvector")
async def test_the_schema_goes_down_and_up_again_with_vectors_in_it(database_url: str) -> None:
    await prepare_vectors(database_url, may_create=True)

    await downgrade(database_url, "base")
    await upgrade(database_url)

    assert (await status(database_url)).is_current
    assert await run_sql(database_url, TABLE) == [(False,)]


@pytest.mark.usefixtures("pgvector")
async def test_a_role_that_may_not_create_the_extension_is_told_who_may(bare_database_url: str) -> None:
    if await run_sql(bare_database_url, "select from pg_roles where rolname = current_user and rolsuper"):
        pytest.skip("the role of this server may create extensions")
    await upgrade(bare_database_url)

    with pytest.raises(DatabaseUnusable, match="let a superuser run `create extension vector` in the database"):
        await prepare_vectors(bare_database_url, may_create=True)
    assert await run_sql(bare_database_url, TABLE) == [(False,)]


@pytest.fixture
async def bare_database_url(server_url: str) -> AsyncIterator[str]:
    """The address of a database without extensions, which the embedded server's template has."""
    name = f"throughline_bare_{secrets.token_hex(6)}"
    await run_sql(server_url, f"create database {name} template template0")
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    await run_sql(server_url, f"drop database {name} with (force)")
