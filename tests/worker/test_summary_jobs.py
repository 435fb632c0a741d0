"""Summaries written by jobs alone: of long imports, past adoptions, failures of the summariser and killed processes."""

import asyncio
from pathlib import Path

import pytest

from fakes.compactions import SUMMARY, compact_now, fill, positions_read
from fakes.dying_jobs import BEGUN, LEASE_SECONDS
from fakes.imports import import_into, written
from fakes.raw_sql import run_sql
from fakes.scripted_model import Fail, Say, Step
from fakes.service_process import start_program
from fakes.side_jobs import do_summary_job, doing, side_jobs, until_jobs
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.job_queue import summary_job
from throughline.db.sessions.import_messages import Imported, import_session
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.domain.message import Source
from throughline.domain.run import RunStatus
from throughline.domain.summary import SummaryState
from throughline.execution.compute_threads import present_owner
from throughline.turn.prompting.planning import at_rest

JOBS = "select subject from jobs where kind = 'prepare_summary'"


async def open_with(database: Database) -> Stage:
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = lambda _: Say(SUMMARY)
    return stage


async def prepared_through(stage: Stage) -> int | None:
    parts = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
    return None if parts is None else parts.version.through_position


async def test_an_import_that_is_rolled_back_takes_its_job_along(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    pool = ConnectionPool(parse_address(database_url), PoolConfig(size=1, timeout_seconds=5))

    async def fail(tx: Statements) -> None:
        new = Imported(stage.owner_id, stage.session.agent, "", Source.API, {})
        await import_session(tx, SessionId(new_id()), new, [written(0)])
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        await Transactions(pool).run(fail)
    await pool.close()

    assert await run_sql(database_url, JOBS) == []


async def test_the_end_of_a_turn_puts_the_job_in_line_where_a_summary_is_due(
    database: Database, database_url: str
) -> None:
    stage = await open_with(database)

    await stage.turn("the first of few")
    before = await run_sql(database_url, JOBS)
    await fill(stage, 6)
    await stage.turn("the last of many")

    assert before == []
    assert await run_sql(database_url, JOBS) == [(str(stage.session.id),)]
    assert not await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])
    assert await prepared_through(stage) == 14


async def test_a_turn_that_fails_leaves_it_to_the_job_to_see_what_is_due(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    stage.model.by_request = lambda _: Fail(ModelRejected("never"))

    run = await stage.turn("to no avail")

    assert run.status is RunStatus.FAILED
    assert await run_sql(database_url, JOBS) == [(str(stage.session.id),)]
    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])
    assert len(stage.model.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("messages", [600, pytest.param(3000, marks=pytest.mark.proof)])
async def test_a_long_import_is_summarised_to_its_end_without_a_turn(
    database: Database, database_url: str, messages: int
) -> None:
    stage = await open_with(database)
    await import_into(stage, messages)
    assert await run_sql(database_url, JOBS) == [(str(stage.session.id),)]

    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    _, conversation = await at_rest(stage.dependencies, stage.session)
    assert conversation.prepared is not None
    assert conversation.prepared.through_position >= messages - 12
    read = positions_read(stage.model.requests)
    assert sorted(set(read)) == list(range(1, conversation.prepared.through_position + 1))


async def test_a_job_that_meets_an_adoption_half_way_prepares_what_is_due_then(
    database: Database, database_url: str
) -> None:
    gate = asyncio.Event()
    stage = await open_with(database)
    steps = [Say(SUMMARY, gate=gate)]
    stage.model.by_request = lambda _: steps.pop(0) if steps else Say(SUMMARY)
    await fill(stage, 8)

    async with doing(side_jobs(stage)):
        await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        async with asyncio.timeout(HANG_SECONDS):
            while not stage.model.requests:
                await asyncio.sleep(0.01)
        await compact_now(stage, "first")
        await fill(stage, 8)
        gate.set()
        await until_jobs(database_url, [])

    assert (await stage.reload()).summary_through_position == 14
    assert await prepared_through(stage) == 30


async def test_a_summariser_that_was_down_is_asked_again_by_the_job(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    steps: list[Step] = [Fail(ModelUnavailable("away")), Fail(ModelUnavailable("away"))]
    stage.model.by_request = lambda _: steps.pop(0) if steps else Say(SUMMARY)
    await fill(stage, 6)

    async with doing(side_jobs(stage)):
        await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        await until_jobs(database_url, [])

    assert len(stage.model.requests) == 3
    assert await prepared_through(stage) == 10


async def test_a_job_does_not_come_back_before_the_summariser_has_rested(database: Database) -> None:
    stage = await open_with(database)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    await fill(stage, 6)

    pauses = [await do_summary_job(stage) for _ in range(3)]

    assert [None if left is None else (left.has_failed, left.delay.total_seconds()) for left in pauses] == [
        (True, 0),
        (True, 0),
        (True, 60),
    ]


async def test_a_job_computes_in_its_owners_line(database: Database) -> None:
    stage = await open_with(database)
    owners: list[object] = []

    def note(_request: object) -> Step:
        owners.append(present_owner())
        return Say(SUMMARY)

    stage.model.by_request = note
    await fill(stage, 6)

    await asyncio.create_task(do_summary_job(stage))

    assert owners == [stage.owner_id]


@pytest.mark.slow
async def test_the_job_of_a_killed_process_is_done_by_another(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
    log = tmp_path / "log"
    dying = await start_program(tmp_path, {}, database_url, log=log, module="fakes.dying_jobs")
    await until(lambda: BEGUN in log.read_text().splitlines() or dying.returncode is not None)
    assert dying.returncode is None
    dying.kill()
    await dying.wait()

    async with doing(side_jobs(stage, lease_seconds=LEASE_SECONDS)):
        await until_jobs(database_url, [])

    assert await prepared_through(stage) == 10
