"""How a job ends: only for the process that holds it, and never by an accident on the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from pgqueuer import AsyncpgDriver
from pgqueuer.types import JobId, QueueManagerId

from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.database import Database
from throughline.db.jobs.consumer import JobConsumer
from throughline.db.jobs.held_jobs import Answers, held_jobs
from throughline.db.jobs.kinds import ENQUEUE_SUMMARY
from throughline.db.jobs.queue import Again, Ending, Job, JobBook, LetGo, Perform, TakenJob

JOB = Job("prepare_summary", "0190a6e0-0000-7000-8000-000000000001")
NEXT = Job(JOB.kind, "0190a6e0-0000-7000-8000-000000000002")
MINE = "00000000-0000-0000-0000-000000000002"
OTHER = "00000000-0000-0000-0000-000000000001"
TAKEN_OVER = f"update throughline_jobs.pgqueuer set queue_manager_id = '{OTHER}', attempts = 7"
TAKEN_ONCE_MORE = "update throughline_jobs.pgqueuer set attempts = attempts + 1"
LOG = "throughline_jobs.pgqueuer_log"
ROWS = "select status::text, queue_manager_id::text, attempts from throughline_jobs.pgqueuer order by id"
ALL = "select 1 from throughline_jobs.pgqueuer"
BLOCKED = f"select 1 from {BACKENDS} where application_name = 'throughline jobs' and wait_event_type = 'Lock'"
REFUSE = """
    create function refuse() returns trigger as $$ begin raise exception 'on purpose'; end $$ language plpgsql;
"""
REFUSE_BEGINNING = """
    create trigger refusing before update on throughline_jobs.pgqueuer for each row
    when (new.attempts > old.attempts) execute function refuse()
"""
REFUSE_ENDING = """
    create trigger refusing before update on throughline_jobs.pgqueuer for each row
    when (old.status = 'picked' and new.status = 'queued') execute function refuse()
"""
REFUSE_REMOVING = """
    create trigger refusing before delete on throughline_jobs.pgqueuer for each row execute function refuse()
"""
ALLOW = "drop trigger refusing on throughline_jobs.pgqueuer"


@asynccontextmanager
async def taking(url: str, perform: Perform) -> AsyncIterator[asyncio.Task[None]]:
    consumer = JobConsumer(parse_address(url))
    running = asyncio.create_task(consumer.run(JobBook({JOB.kind: perform}), most_at_once=2))
    yield running
    consumer.close()
    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("ending", [None, LetGo(), Again(timedelta(0))])
async def test_a_job_that_another_process_has_taken_over_is_left_to_it(
    database: Database, database_url: str, ending: Ending
) -> None:
    async def perform(_taken: TakenJob) -> Ending:
        await run_sql(database_url, TAKEN_OVER)
        return ending

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_sql(database_url, f"{ALL} where queue_manager_id = '{OTHER}'")

    assert await run_sql(database_url, ROWS) == [("picked", OTHER, 7)]
    assert not await database.jobs.enqueue(JOB)


@pytest.mark.parametrize("ending", [None, LetGo(), Again(timedelta(0))])
async def test_a_late_ending_leaves_alone_what_the_same_process_has_taken_once_more(
    database: Database, database_url: str, ending: Ending
) -> None:
    async def perform(taken: TakenJob) -> Ending:
        if taken.job == JOB:
            await run_sql(database_url, TAKEN_ONCE_MORE)
            await database.jobs.enqueue(NEXT)
            return ending
        return None

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_sql(database_url, f"select 1 from {LOG} where status = 'successful'")

    assert [(status, attempts) for status, _, attempts in await run_sql(database_url, ROWS)] == [("picked", 2)]


async def test_a_sign_of_life_is_given_for_what_is_still_held_only(database: Database, database_url: str) -> None:
    await database.jobs.enqueue(JOB)
    await database.jobs.enqueue(Job(JOB.kind, "theirs"))
    old = "update throughline_jobs.pgqueuer set heartbeat = now() - interval '1 hour', queue_manager_id = $1"
    await run_sql(database_url, old, MINE)
    await run_sql(database_url, f"{old} where dedupe_key like '%:theirs'", OTHER)
    ids = [number for (number,) in await run_sql(database_url, "select id from throughline_jobs.pgqueuer")]
    connection = await asyncpg.connect(**parse_address(database_url).arguments())
    held = held_jobs(AsyncpgDriver(connection), Answers(), give_up=connection.terminate)
    held.held_by = QueueManagerId(UUID(MINE))

    await held.update_heartbeat([JobId(int(str(number))) for number in ids])
    await connection.close()

    fresh = "select dedupe_key from throughline_jobs.pgqueuer where heartbeat > now() - interval '30 minutes'"
    assert await run_sql(database_url, fresh) == [(f"{JOB.kind}:{JOB.subject}",)]


async def test_a_job_that_could_not_be_begun_is_not_lost_and_counts_as_untried(
    database: Database, database_url: str
) -> None:
    async def perform(_taken: TakenJob) -> None:
        raise AssertionError

    await run_sql(database_url, REFUSE)
    await run_sql(database_url, REFUSE_BEGINNING)
    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_sql(database_url, f"{ALL} where execute_after > created")

    assert await run_sql(database_url, ROWS) == [("queued", None, 0)]


@pytest.mark.parametrize(
    ("refuse", "ending", "left"), [(REFUSE_REMOVING, None, []), (REFUSE_ENDING, Again(timedelta(hours=1)), ["queued"])]
)
async def test_an_ending_that_fails_is_tried_again_and_nothing_is_done_twice(
    database: Database, database_url: str, refuse: str, ending: Ending, left: list[str]
) -> None:
    done: list[TakenJob] = []

    async def perform(taken: TakenJob) -> Ending:
        done.append(taken)
        return ending

    await run_sql(database_url, REFUSE)
    await run_sql(database_url, refuse)
    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        async with asyncio.timeout(HANG_SECONDS):
            while not done:
                await asyncio.sleep(0.02)
        while_refused = await run_sql(database_url, ROWS)
        await run_sql(database_url, ALLOW)
        await until_sql(database_url, f"select 1 where not exists ({ALL} where status = 'picked')")

    assert [status for status, _, _ in while_refused] == ["picked"]
    assert [status for (status, _, _) in await run_sql(database_url, ROWS)] == left
    assert done == [TakenJob(JOB)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [None, Again(timedelta(0))])
async def test_a_job_whose_ending_is_cut_off_stays_in_hand_to_be_taken_again(
    database: Database, database_url: str, ending: Ending
) -> None:
    gate = asyncio.Event()
    begun = asyncio.Event()

    async def perform(_taken: TakenJob) -> Ending:
        begun.set()
        await gate.wait()
        return ending

    async with taking(database_url, perform) as running:
        await database.jobs.enqueue(JOB)
        await begun.wait()
        async with hold_rows(database_url, "select 1 from throughline_jobs.pgqueuer for update"):
            gate.set()
            await until_sql(database_url, BLOCKED)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await until_sql(database_url, f"select 1 where not exists ({BLOCKED})")

    assert [(status, attempts) for status, _, attempts in await run_sql(database_url, ROWS)] == [("picked", 1)]


@pytest.mark.parametrize("ending", [None, Again(timedelta(0))])
async def test_a_job_that_is_cancelled_is_not_taken_out_of_the_queue(
    database: Database, database_url: str, ending: Ending
) -> None:
    begun = asyncio.Event()

    async def perform(_taken: TakenJob) -> Ending:
        begun.set()
        await asyncio.Event().wait()
        return ending

    async with taking(database_url, perform) as running:
        await database.jobs.enqueue(JOB)
        await begun.wait()
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(running, return_exceptions=True)

    assert len(await run_sql(database_url, ROWS)) == 1


@pytest.mark.parametrize("ending", [None, LetGo()])
async def test_a_job_that_is_asked_for_while_it_is_done_is_done_once_more(
    database: Database, database_url: str, ending: Ending
) -> None:
    done: list[TakenJob] = []
    was_put: list[bool] = []

    async def perform(taken: TakenJob) -> Ending:
        done.append(taken)
        if len(done) == 1:
            was_put.extend([await database.jobs.enqueue(JOB), await database.jobs.enqueue(JOB)])
        return ending

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_sql(database_url, f"select 1 where not exists ({ALL})")

    assert done == [TakenJob(JOB), TakenJob(JOB)]
    assert was_put == [False, False]


async def test_a_job_is_not_missed_that_is_asked_for_in_a_commit_while_it_ends(
    database: Database, database_url: str
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    done: list[TakenJob] = []
    ask = f"with ended as (select cast('{JOB.subject}' as uuid) as session_id) {ENQUEUE_SUMMARY}"

    async def perform(taken: TakenJob) -> None:
        done.append(taken)
        begun.set()
        await gate.wait()

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await begun.wait()
        async with hold_rows(database_url, ask):
            gate.set()
            await until_sql(database_url, BLOCKED)
        await until_sql(database_url, f"select 1 where not exists ({ALL})")

    assert len(done) == 2
