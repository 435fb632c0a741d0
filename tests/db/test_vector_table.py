"""The table of vectors: made where it can be, and else a sentence that says what to do."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import make_url

from fakes.raw_sql import run_sql
from throughline.db.connection.migrations import downgrade, status, upgrade
from throughline.db.database import Database
from throughline.db.memories import prepare_vectors
from throughline.domain.errors import DatabaseUnusable

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
