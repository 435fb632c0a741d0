"""Tests that use one database after the other see no rows of each other, and none what another did to a schema."""

import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import open_conversation
from fakes.database_pool import INSERTED, DatabasePool
from fakes.memory_folder import memory_folder
from fakes.pooler import environment_of
from fakes.raw_sql import run_sql
from fakes.service_process import kill_programs_using, start_program
from fakes.shared_server import new_migrated_database
from fakes.stage import open_stage
from fakes.waiting import until_found
from throughline.db.connection.address import parse_address
from throughline.db.database import Database, DatabaseConfig
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

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

    assert {name for (name,) in await run_sql(database_url, RELATIONS)} == emptied


async def test_a_database_in_which_somebody_was_left_is_not_used_again(pool: DatabasePool) -> None:
    """A program would connect anew if it were only thrown out."""
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
    """A server that crashes begins to count anew, as if nothing had been written."""
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
