"""Whether the database is ready is told by the database, not by how busy this process is or how often it is asked."""

import asyncio
from pathlib import Path

import pytest

from fakes.raw_sql import hold_rows, run_sql, until_sql
from fakes.slow_request import WAITING, slow_request
from throughline.db.connection import migrations
from throughline.db.connection.migrations import head_revision
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import DatabaseUnusable

AT_ONCE = 50


@pytest.fixture
async def full(database_url: str) -> Database:
    """A database whose only connection for requests is soon waited for in vain."""
    return await Database.open(DatabaseConfig(url=database_url, pool_size=1, pool_timeout_seconds=0.01))


async def test_a_schema_that_became_newer_under_a_running_process_serves_it(
    database: Database, database_url: str
) -> None:
    before = await database.check_ready()
    await run_sql(database_url, "update alembic_version set version_num = '9999'")

    assert (before, await database.check_ready()) == (head_revision(), "9999")


async def test_a_pool_that_is_full_is_load_and_no_outage(full: Database, database_url: str) -> None:
    async with slow_request(full, database_url):
        assert await full.check_ready() == head_revision()
    await full.close()


async def test_many_who_ask_at_once_cost_one_answer_and_get_the_same(full: Database, database_url: str) -> None:
    async with hold_rows(database_url, "select 1 from write_checks for update"):
        asking = [asyncio.create_task(full.check_ready()) for _ in range(AT_ONCE)]
        await until_sql(database_url, WAITING)
        waiting = await run_sql(database_url, WAITING)
        for task in asking[: AT_ONCE // 2]:
            task.cancel()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    await full.close()

    assert len(waiting) == 1
    assert [answer for answer in answers if not isinstance(answer, asyncio.CancelledError)] == [head_revision()] * (
        AT_ONCE // 2
    )


async def test_a_failure_is_told_to_all_and_the_next_who_asks_looks_again(full: Database, database_url: str) -> None:
    await run_sql(database_url, "update alembic_version set version_num = '0018'")
    answers = await asyncio.gather(*(full.check_ready() for _ in range(3)), return_exceptions=True)
    await run_sql(database_url, "update alembic_version set version_num = $1", head_revision())

    await full.check_ready()
    await full.close()

    assert [type(answer) for answer in answers] == [DatabaseUnusable] * 3


async def test_the_migration_scripts_are_read_once(full: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await full.check_ready()
    monkeypatch.setattr(migrations, "_scripts", lambda: Path("nowhere"))

    assert await full.check_ready() == before
    await full.close()
