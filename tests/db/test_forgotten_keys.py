"""Idempotency keys are forgotten after their time, of ended runs and of sessions, and a key that returns is new."""

import asyncio
from uuid import UUID

import pytest

from fakes.manual_clock import ManualClock
from fakes.raw_sql import hold_rows, run_sql
from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage
from throughline.db.database import Database
from throughline.db.retention import ROWS_AT_ONCE
from throughline.db.sessions.create import CreateOutcome
from throughline.domain.message import Source
from throughline.domain.run import Run
from throughline.domain.session import NewSession, Session
from throughline.turn.worker.retention import Retention, RetentionConfig

KEYED = "select idempotency_key from {table} where idempotency_key is not null order by 1"


@pytest.fixture
async def stage(database: Database) -> Stage:
    stage = await open_stage(database)
    stage.model.by_request = lambda _: Say("Yes.")
    return stage


def retention_of(stage: Stage, hours: int = 48) -> Retention:
    return Retention(
        stage.database.retention, ManualClock(), stage.metrics, RetentionConfig(idempotency_keys_hours=hours)
    )


def old_id(number: int) -> UUID:
    """Return an id as it was made in 2022."""
    return UUID(f"01800000-0000-7000-8000-{number:012x}")


async def keys(url: str, table: str = "runs") -> list[object]:
    return [key for (key,) in await run_sql(url, KEYED.format(table=table))]


async def store_old_runs(stage: Stage, url: str, keys: range, *, ended_hours_ago: int | None = 49) -> None:
    """Store runs made long ago, each under its number as its key."""
    await run_sql(
        url,
        "insert into runs (id, session_id, owner_id, agent, status, input, source, idempotency_key, fingerprint, "
        "finished_at) select cast('01800000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') as uuid), $1, $2, 'assistant',"
        " case when $5::int is null then 'queued' else 'succeeded' end, '{\"content\": \"long ago\"}', 'api', "
        "n::text, 'f', now() - make_interval(hours => $5) from generate_series($3::int, $4::int) n",
        stage.session.id,
        stage.owner_id,
        keys.start,
        keys.stop - 1,
        ended_hours_ago,
    )


async def submit_and_end(stage: Stage, url: str, key: str) -> Run:
    run = await stage.submit("What is it?", key=key)
    await run_sql(url, "update runs set status = 'succeeded', finished_at = now() where id = $1", run.id)
    return run


async def create(stage: Stage, key: str) -> tuple[Session, CreateOutcome]:
    new = NewSession(stage.owner_id, "assistant", "", Source.API, {}, idempotency_key=key, fingerprint="f")
    return await stage.database.sessions.create(new)


async def test_keys_of_runs_that_ended_long_ago_go_and_those_of_others_stay(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(1, 2))
    await store_old_runs(stage, database_url, range(2, 3), ended_hours_ago=47)
    await store_old_runs(stage, database_url, range(3, 4), ended_hours_ago=None)
    await submit_and_end(stage, database_url, "young")

    await retention_of(stage).run()
    await retention_of(stage).run()

    assert await keys(database_url) == ["2", "3", "young"]
    assert await run_sql(database_url, "select fingerprint from runs where id = $1", old_id(1)) == [("",)]


async def test_keys_of_runs_that_wait_keep_nothing_behind_them(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE), ended_hours_ago=None)
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE, ROWS_AT_ONCE + 3))

    await retention_of(stage).run()

    assert len(await keys(database_url)) == ROWS_AT_ONCE


async def test_a_key_that_was_forgotten_is_a_new_request(stage: Stage, database_url: str) -> None:
    first = await submit_and_end(stage, database_url, "young")
    await store_old_runs(stage, database_url, range(1, 2))
    await retention_of(stage).run()

    again = await stage.submit("What is it?", key="young")
    later = await stage.submit("Something else", key="1")

    assert again.id == first.id
    assert later.id != old_id(1)


async def test_keys_of_sessions_made_long_ago_go_with_their_fingerprints(stage: Stage, database_url: str) -> None:
    kept, _ = await create(stage, "young")
    await run_sql(
        database_url,
        "insert into sessions (id, owner_id, agent, source, idempotency_key, fingerprint) "
        "values ($1, $2, 'assistant', 'api', 'old', 'f')",
        old_id(1),
        stage.owner_id,
    )

    await retention_of(stage).run()

    assert await keys(database_url, "sessions") == ["young"]
    assert (await create(stage, "young")) == (kept, CreateOutcome.REPLAYED)
    assert (await create(stage, "old"))[1] is CreateOutcome.CREATED
    assert await run_sql(database_url, "select fingerprint from sessions where id = $1", old_id(1)) == [("",)]


async def test_a_run_that_somebody_holds_is_passed_over_until_the_next_time(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(ROWS_AT_ONCE + 3))

    async with hold_rows(database_url, f"select from runs where id = '{old_id(0)}' for update"):
        await retention_of(stage).run()
    held = await keys(database_url)
    await retention_of(stage).run()

    assert held == ["0"]
    assert await keys(database_url) == []


async def test_two_at_once_forget_the_same_and_fail_nobody(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(30))

    await asyncio.gather(*(retention_of(stage).run() for _ in range(3)))

    told = [report["count"] for report in stage.metrics.of("retention_deleted") if report["kind"] == "run_keys"]
    assert sum(int(str(count)) for count in told) == 30
    assert await keys(database_url) == []


async def test_keys_are_kept_for_ever_where_their_hours_are_none(stage: Stage, database_url: str) -> None:
    await store_old_runs(stage, database_url, range(3))

    await retention_of(stage, hours=0).run()

    assert len(await keys(database_url)) == 3
