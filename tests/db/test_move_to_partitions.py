"""The move of filled tables of the first revision into partitions: nothing is lost, and the service goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.pooler import urls_of
from fakes.raw_sql import connected, hold_rows, run_sql
from throughline.db.connection.migrations import downgrade, status, upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.db.statements.sql import new_id
from throughline.db.tables.partitions import first_id
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable

BASELINE = "0047"
EVENTS = "select run_id, seq, type, data::text, created_at from run_events order by run_id, seq"
CALLS = "select * from model_calls order by id"
INSERT_EVENT = "insert into run_events (run_id, seq, type, data) values ($1, 1, 'reset', '{}')"
INSERT_CALL = "insert into model_calls (id, model, purpose) values ($1, 'm', 'answer')"
PARTITIONS = "select tableoid::regclass::text, count(*) from {} group by 1 order by 1"


async def fill(url: str) -> None:
    """Store rows of today and of long ago."""
    for row_id in (new_id(), first_id(datetime(2025, 1, 1, tzinfo=UTC))):
        await run_sql(url, INSERT_EVENT, row_id)
        await run_sql(url, INSERT_CALL, row_id)


@pytest.fixture
async def filled_url(empty_database_url: str) -> str:
    """The address of a database of the first revision, with rows."""
    await upgrade(empty_database_url)
    await downgrade(empty_database_url, BASELINE)
    await fill(empty_database_url)
    return empty_database_url


async def test_all_rows_stay_and_new_ones_land_in_partitions_of_their_time(filled_url: str) -> None:
    before = await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)

    await upgrade(filled_url)
    after = await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)
    for days in (0, 2000):
        later = first_id(datetime.now(UTC) + timedelta(days=days))
        await run_sql(filled_url, INSERT_EVENT, later)
        await run_sql(filled_url, INSERT_CALL, later)

    assert before == after
    for table in ("run_events", "model_calls"):
        assert await run_sql(filled_url, PARTITIONS.format(table)) == [(f"{table}_default", 1), (f"{table}_past", 3)]
        bounds = f"select 1 from pg_constraint where conname = '{table}_bound'"
        assert await run_sql(filled_url, bounds) == []


async def test_retention_drops_the_old_table_in_time(filled_url: str) -> None:
    await upgrade(filled_url)
    database = await Database.open(DatabaseConfig(**urls_of(filled_url)))

    too_soon = [await each.drop_expired(0) for each in database.retention.partitions]
    dropped = [await each.drop_expired(-24 * 65) for each in database.retention.partitions]  # in 65 days
    await database.close()

    assert [each.count for each in too_soon] == [0, 0]
    assert [each.count for each in dropped] == [1, 1]
    assert await run_sql(filled_url, EVENTS) == await run_sql(filled_url, CALLS) == []


async def test_an_interrupted_move_is_made_again(filled_url: str) -> None:
    yesterday = first_id(datetime(2020, 1, 1, tzinfo=UTC))
    for table, key in (("run_events", "run_id"), ("model_calls", "id")):
        await run_sql(
            filled_url, f"alter table {table} add constraint {table}_bound check ({key} < '{yesterday}') not valid"
        )

    await upgrade(filled_url)

    assert len(await run_sql(filled_url, EVENTS)) == 2
    await run_sql(filled_url, INSERT_EVENT, new_id())


async def test_a_table_in_use_for_long_is_left_as_it_was_and_the_upgrade_is_run_again(filled_url: str) -> None:
    async with hold_rows(filled_url, "lock table model_calls in row exclusive mode"):
        with pytest.raises(DatabaseUnavailable, match="lock"):
            await upgrade(filled_url)
        between = (await status(filled_url)).current
        await run_sql(filled_url, INSERT_EVENT, new_id())

    await upgrade(filled_url)

    assert between == "0048"
    assert len(await run_sql(filled_url, EVENTS)) == 3
    assert (await status(filled_url)).is_current


async def test_rows_of_a_wrong_clock_land_in_the_default_partition(filled_url: str) -> None:
    times = [datetime.now(UTC) + timedelta(days=days) for days in (70, 71, 3650)]
    for row_id in map(first_id, times):
        await run_sql(filled_url, INSERT_EVENT, row_id)
        await run_sql(filled_url, INSERT_CALL, row_id)
    before = await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)

    await upgrade(filled_url)

    assert (await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)) == before
    for table in ("run_events", "model_calls"):
        assert await run_sql(filled_url, PARTITIONS.format(table)) == [(f"{table}_default", 3), (f"{table}_past", 2)]
    assert await run_sql(filled_url, "select conname from pg_constraint where conname like '%_bound'") == []
    await downgrade(filled_url, BASELINE)
    assert (await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)) == before


async def test_rows_of_a_wrong_clock_stay_readable_if_the_move_is_interrupted(filled_url: str) -> None:
    await run_sql(filled_url, INSERT_EVENT, first_id(datetime(2036, 2, 7, tzinfo=UTC)))
    before = await run_sql(filled_url, EVENTS)

    async with hold_rows(filled_url, "lock table run_events in row share mode"):
        with pytest.raises(DatabaseUnavailable, match="lock"):
            await upgrade(filled_url)
    between = await run_sql(filled_url, EVENTS)
    await upgrade(filled_url)

    assert before == between == await run_sql(filled_url, EVENTS)


async def test_rows_that_cannot_be_moved_are_counted_with_the_remedy(filled_url: str) -> None:
    for year in (2036, 2037):
        await run_sql(filled_url, INSERT_CALL, first_id(datetime(year, 2, 7, tzinfo=UTC)))
    keep = "create function keep() returns trigger language plpgsql as $$ begin return null; end $$"
    for statement in (keep, "create trigger keep before delete on model_calls for each row execute function keep()"):
        await run_sql(filled_url, statement)

    with pytest.raises(DatabaseUnusable, match=r"model_calls .* 2 of its rows .*`delete from model_calls where id >="):
        await upgrade(filled_url)
    between = await run_sql(filled_url, CALLS)
    await run_sql(filled_url, "drop trigger keep on model_calls")
    await upgrade(filled_url)

    assert between == await run_sql(filled_url, CALLS)
    assert len(between) == 4


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[list[object]]:
    """Store rows all the time, by prepared statements as the service has them; the ids are added to what is yielded."""
    stored: list[object] = []
    is_over = asyncio.Event()

    async def write() -> None:
        async with connected(url) as connection:
            event, call = [await connection.prepare(text) for text in (INSERT_EVENT, INSERT_CALL)]
            while not is_over.is_set():
                row_id = new_id()
                await event.fetch(row_id)
                await call.fetch(row_id)
                stored.append(row_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(write())
        yield stored
        is_over.set()


async def test_writers_go_on_and_lose_nothing(filled_url: str) -> None:
    async with writing(filled_url) as stored:
        await upgrade(filled_url)
        during = len(stored)
        while len(stored) < during + 10:
            await asyncio.sleep(0)

    events = {run_id for run_id, *_ in await run_sql(filled_url, EVENTS)}
    calls = {row_id for row_id, *_ in await run_sql(filled_url, CALLS)}
    assert set(stored) <= events & calls


async def test_the_way_back_keeps_all_rows(filled_url: str) -> None:
    before = await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)
    await upgrade(filled_url)

    await downgrade(filled_url, BASELINE)

    assert (await run_sql(filled_url, EVENTS), await run_sql(filled_url, CALLS)) == before
    with pytest.raises(asyncpg.UniqueViolationError):
        await fill(filled_url)
