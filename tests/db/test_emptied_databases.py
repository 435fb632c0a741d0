"""Tests that use one database after the other see no rows of each other, and none what another did to a schema."""

from collections.abc import AsyncIterator

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from app.db.connection.address import parse_address
from app.db.database import Database, DatabaseConfig
from fakes.conversations import open_conversation
from fakes.database_pool import TABLES, DatabasePool
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.stage import open_stage

SEQUENCES = "select seqrelid::regclass::text from pg_sequence where pg_sequence_last_value(seqrelid) is not null"
OTHERS = "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture
async def pool(server_url: str, template_name: str) -> AsyncIterator[DatabasePool]:
    opened = DatabasePool(server_url, template_name)
    yield opened
    await opened.close()


async def filled(url: str) -> set[str]:
    """Return the tables that hold rows and the sequences that were drawn from."""
    tables = [str(row[0]) for row in await run_sql(url, TABLES)]
    holding = {name for name in tables if await run_sql(url, f"select from {name} limit 1")}
    return holding | {str(row[0]) for row in await run_sql(url, SEQUENCES)}


async def leave_rows(url: str) -> None:
    """Do what tests do: converse, submit, and put jobs in line."""
    database = await Database.open(DatabaseConfig(**urls_of(url), pool_size=2))
    conversation = await open_conversation(database)
    await (await open_stage(database)).turn("hello")
    await run_sql(url, "insert into slack_users values ('T1', 'U1', $1, 'unlinked')", conversation.owner_id)
    await run_sql(url, "insert into throughline_jobs.pgqueuer (priority, entrypoint, status) values (0, 'x', 'queued')")
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


async def test_whoever_was_left_in_an_emptied_database_is_thrown_out(pool: DatabasePool) -> None:
    url = await pool.take()
    left = await asyncpg.connect(**parse_address(url).arguments())
    await left.execute("begin; insert into users (id, name) values (gen_random_uuid(), 'left')")

    await pool.give_back(url)

    assert await pool.take() == url
    assert await run_sql(url, OTHERS) == []
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await left.execute("commit")
    left.terminate()
    await pool.give_back(url)


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
