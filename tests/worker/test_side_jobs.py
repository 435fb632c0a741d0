"""Side jobs: a summary prepared by the worker that takes jobs, failures that end, shutdowns that hand back."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from fakes.compactions import SUMMARY, compact_now, fill, positions_read
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.scripted_model import Fail, Hang, Say, Step
from fakes.service_process import start_program
from fakes.side_jobs import BEGUN, LEASE_SECONDS, do_summary_job, doing, side_jobs, until_jobs
from fakes.stage import Stage, import_into, open_stage, with_context, written
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.service_status import read_service_status
from throughline.db.sessions.import_messages import Imported, import_session
from throughline.db.side_jobs import Job, JobClaim, summary_job
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.domain.message import Source
from throughline.domain.run import RunStatus
from throughline.domain.summary import SummaryState
from throughline.execution.compute_threads import present_owner
from throughline.turn.prompting.planning import at_rest
from throughline.turn.worker.jobs import MAX_CRASHES, MOST_TRIES
from throughline.turn.worker.worker import Worker, WorkerConfig

SIDE_SUMMARY = "## Intent\nThe user counts [#1-#2]."


async def open_with(database: Database, **policy: object) -> Stage:
    wanted = {"window": 8192, "min_recent_messages": 2, "max_messages_before_summary": 10, **policy}
    stage = await open_stage(database, agent=with_context(**wanted))
    stage.model.by_request = lambda _: Say(SIDE_SUMMARY)
    return stage


async def prepared_through(stage: Stage) -> int | None:
    parts = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
    return None if parts is None else parts[0].through_position


async def test_a_turn_that_makes_a_summary_due_has_it_prepared_by_another_process(
    database: Database, database_url: str
) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    no_jobs_here = side_jobs(stage, {"nothing": lambda _: asyncio.sleep(0)})
    worker = Worker(stage.dependencies, database.notifier.work, no_jobs_here, WorkerConfig(name="takes turns"))
    async with worker.working():
        await stage.submit("and on")
        await until_jobs(database_url, ["queued"])
    assert await prepared_through(stage) is None

    async with doing(side_jobs(stage)):
        await until_jobs(database_url, [])

    assert await prepared_through(stage) == 12


async def test_the_second_delivery_of_a_job_finds_nothing_to_do(database: Database) -> None:
    stage = await open_with(database)
    await fill(stage, 6)
    await do_summary_job(stage)
    calls = len(stage.model.requests)

    await do_summary_job(stage)

    assert calls == len(stage.model.requests) == 1


async def test_a_job_for_a_session_that_is_gone_ends_quietly(database: Database) -> None:
    stage = await open_with(database)
    await database.sessions.delete(stage.owner_id, stage.session.id)

    await do_summary_job(stage)

    assert stage.model.requests == []


async def test_a_turn_that_ends_while_its_summary_is_written_is_not_missed(
    database: Database, database_url: str
) -> None:
    gate = asyncio.Event()
    stage = await open_with(database)
    steps = [Say(SIDE_SUMMARY, gate=gate), Say(SIDE_SUMMARY)]
    stage.model.by_request = lambda _: steps.pop(0)
    await fill(stage, 6)

    async with doing(side_jobs(stage)):
        await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        async with asyncio.timeout(HANG_SECONDS):
            while not stage.model.requests:
                await asyncio.sleep(0.01)
        await fill(stage, 6)
        was_put = await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        gate.set()
        await until_jobs(database_url, [])

    assert not was_put
    assert await prepared_through(stage) == 22


async def test_a_job_that_always_fails_is_let_go_and_may_come_again(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    tries: list[str] = []

    async def fail(subject: str) -> None:
        tries.append(subject)
        raise ValueError("on purpose")

    async with doing(side_jobs(stage, {"poison": fail})):
        await database.jobs.enqueue(Job("poison", "1"))
        await until_jobs(database_url, [])
        assert await database.jobs.enqueue(Job("poison", "1"))
        await until_jobs(database_url, [])

    assert len(tries) == 2 * MOST_TRIES
    assert [(work.kind, work.failed) for work in (await read_service_status(database_url)).jobs] == [("poison", 2)]


async def test_a_stopped_job_goes_back_into_the_line_at_once(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    begun = asyncio.Event()

    async def hang(_subject: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with doing(side_jobs(stage, {"long": hang})):
        await database.jobs.enqueue(Job("long", "1"))
        async with asyncio.timeout(HANG_SECONDS):
            await begun.wait()

    counts = "select lease_until is null, attempt, failures from jobs"
    assert await run_sql(database_url, counts) == [(True, 0, 0)]


async def test_a_job_over_which_processes_die_is_not_begun_for_ever(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    begun: list[str] = []

    async def note(subject: str) -> None:
        begun.append(subject)

    await leave(database, database_url, {"killer": MAX_CRASHES, "unlucky": MAX_CRASHES - 1})
    async with doing(side_jobs(stage, {"deadly": note})):
        await until_jobs(database_url, [])

    assert begun == ["unlucky"]
    assert [work.failed for work in (await read_service_status(database_url)).jobs] == [1]


async def test_a_job_over_which_a_second_process_died_rests_before_it_is_begun(
    database: Database, database_url: str
) -> None:
    await leave(database, database_url, {"second": 2, "first": 1})
    claim = JobClaim("worker", 30, ["deadly"], first_pause=timedelta(seconds=60))

    first, none = await database.jobs.claim(claim), await database.jobs.claim(claim)
    await run_sql(database_url, "update jobs set lease_until = now() - interval '62 seconds' where subject = 'second'")
    second = await database.jobs.claim(claim)

    assert (first and first.job.subject, none, second and second.job.subject) == ("first", None, "second")
    assert (first and first.attempt, second and second.attempt) == (2, 3)


async def leave(database: Database, url: str, attempts: Mapping[str, int]) -> None:
    """Leave jobs as processes do that die over them, each begun so often."""
    for subject, attempt in attempts.items():
        await database.jobs.enqueue(Job("deadly", subject))
        left = "update jobs set attempt = $1, lease_until = now() - interval '1 second' where subject = $2"
        await run_sql(url, left, attempt, subject)


async def test_no_more_jobs_are_done_at_once_than_allowed(database: Database, database_url: str) -> None:
    stage = await open_with(database)
    at_once: list[int] = []
    running = 0

    async def count(_subject: str) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    async with doing(side_jobs(stage, {"count": count}, concurrency=1)):
        for number in range(6):
            await database.jobs.enqueue(Job("count", str(number)))
        await until_jobs(database_url, [])

    assert at_once == [1] * 6


async def test_the_job_of_a_dead_process_is_taken_after_its_last_sign_of_life(
    database: Database, database_url: str
) -> None:
    stage = await open_with(database)
    done: list[str] = []

    async def finish(subject: str) -> None:
        done.append(subject)

    await database.jobs.enqueue(Job("left", "1"))
    await run_sql(database_url, "update jobs set attempt = 1, lease_until = now() - interval '1 second'")

    async with doing(side_jobs(stage, {"left": finish})):
        await until_jobs(database_url, [])

    assert done == ["1"]


@pytest.mark.parametrize("pool_size", [1])
async def test_a_job_that_waits_for_a_model_holds_no_connection_of_the_pool(database_url: str, pool_size: int) -> None:
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=pool_size, pool_timeout_seconds=1))
    stage = await open_with(database)
    await fill(stage, 6)
    stage.model.by_request = lambda _: Hang("half a summary")

    async with doing(side_jobs(stage)):
        await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        async with asyncio.timeout(HANG_SECONDS):
            while not stage.model.requests:
                await asyncio.sleep(0.01)
        found = await asyncio.gather(*(stage.messages() for _ in range(5)))
    await database.close()

    assert [len(messages) for messages in found] == [12] * 5


JOBS = "select subject from jobs where kind = 'prepare_summary'"


async def open_with_job(database: Database) -> Stage:
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = lambda _: Say(SUMMARY)
    return stage


async def test_an_import_that_is_rolled_back_takes_its_job_along(database: Database, database_url: str) -> None:
    stage = await open_with_job(database)
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
    stage = await open_with_job(database)

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
    stage = await open_with_job(database)
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
    stage = await open_with_job(database)
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
    stage = await open_with_job(database)
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
    stage = await open_with_job(database)
    steps: list[Step] = [Fail(ModelUnavailable("away")), Fail(ModelUnavailable("away"))]
    stage.model.by_request = lambda _: steps.pop(0) if steps else Say(SUMMARY)
    await fill(stage, 6)

    async with doing(side_jobs(stage)):
        await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
        await until_jobs(database_url, [])

    assert len(stage.model.requests) == 3
    assert await prepared_through(stage) == 10


async def test_a_job_does_not_come_back_before_the_summariser_has_rested(database: Database) -> None:
    stage = await open_with_job(database)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))
    await fill(stage, 6)

    pauses = [await do_summary_job(stage) for _ in range(3)]

    assert [None if left is None else (left.has_failed, left.delay.total_seconds()) for left in pauses] == [
        (True, 0),
        (True, 0),
        (True, 60),
    ]


async def test_a_job_computes_in_its_owners_line(database: Database) -> None:
    stage = await open_with_job(database)
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
    stage = await open_with_job(database)
    await fill(stage, 6)
    await database.jobs.enqueue(summary_job(stage.session.id, stage.owner_id))
    log = tmp_path / "log"
    dying = await start_program(tmp_path, {}, database_url, log=log, module="fakes.side_jobs")
    await until(lambda: BEGUN in log.read_text().splitlines() or dying.returncode is not None)
    assert dying.returncode is None
    dying.kill()
    await dying.wait()

    async with doing(side_jobs(stage, lease_seconds=LEASE_SECONDS)):
        await until_jobs(database_url, [])

    assert await prepared_through(stage) == 10
