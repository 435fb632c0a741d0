"""The queue of side jobs: part of the transaction it is used in, one job of a kind and subject, one order."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.job_queue import Job, JobClaim, PutBack, Schedule, TakenJob, enqueue_job
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import UserId

JOB = Job("prepare_summary", "0190a6e0-0000-7000-8000-000000000001")
OTHERS = tuple(Job(JOB.kind, f"{number}") for number in range(3))
QUEUED = "select kind, subject from jobs where lease_until is null order by seq"
CLAIM = JobClaim("worker", lease_seconds=30, kinds=[JOB.kind])


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=2, timeout_seconds=5))
    yield pool
    await pool.close()


async def take(database: Database, claim: JobClaim = CLAIM) -> TakenJob:
    taken = await database.jobs.claim(claim)
    assert taken is not None
    return taken


async def test_a_job_put_in_line_before_anything_else_goes_with_the_rollback(
    pool: ConnectionPool, database_url: str
) -> None:
    async def fail(tx: Statements) -> None:
        await enqueue_job(tx, JOB)
        await tx.fetch(sql("select 1"))
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        await Transactions(pool).run(fail)

    assert await run_sql(database_url, QUEUED) == []


async def test_a_job_is_there_once_its_transaction_is(pool: ConnectionPool, database_url: str) -> None:
    async def put(tx: Statements) -> bool:
        return await enqueue_job(tx, JOB)

    assert await Transactions(pool).run(put)

    assert await run_sql(database_url, QUEUED) == [(JOB.kind, JOB.subject)]


async def test_the_same_job_from_many_at_once_is_there_once_and_aborts_nobody(
    database: Database, database_url: str
) -> None:
    put = await asyncio.gather(*(database.jobs.enqueue(JOB) for _ in range(20)))

    assert sorted(put) == [False] * 19 + [True]
    assert len(await run_sql(database_url, QUEUED)) == 1


async def test_a_job_that_is_there_already_leaves_its_transaction_as_it_was(
    pool: ConnectionPool, database: Database, database_url: str
) -> None:
    await database.jobs.enqueue(JOB)

    async def put(tx: Statements) -> bool:
        was_put = await enqueue_job(tx, JOB)
        await tx.fetch(sql("insert into users (id, name) values (gen_random_uuid(), 'anna')"))
        return was_put

    assert not await Transactions(pool).run(put)

    assert await run_sql(database_url, "select name from users") == [("anna",)]


async def test_a_job_put_in_line_wakes_those_who_take_jobs(database: Database) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not database.notifier.is_listening:
            await asyncio.sleep(0.01)
    await database.jobs.work.wait(0.01)  # a new connection wakes, too

    await database.jobs.enqueue(JOB)

    assert await database.jobs.work.wait(HANG_SECONDS)


async def test_a_job_put_back_wakes_those_who_take_jobs(database: Database) -> None:
    await database.jobs.enqueue(JOB)
    taken = await take(database)
    while await database.jobs.work.wait(0.2):
        pass

    await database.jobs.put_back(taken.lease, PutBack())

    assert await database.jobs.work.wait(HANG_SECONDS)


async def test_a_job_held_by_the_claimer_is_not_claimed_though_its_lease_ran_out(
    database: Database, database_url: str
) -> None:
    await database.jobs.enqueue(JOB)
    taken = await take(database)
    await run_sql(database_url, "update jobs set lease_until = now() - interval '1 second'")

    none = await database.jobs.claim(replace(CLAIM, held=[taken.lease.id]))
    taken_over = await take(database)

    assert (none, taken_over.job) == (None, JOB)


async def test_jobs_are_taken_in_their_order_and_each_by_one(database: Database) -> None:
    for job in OTHERS:
        await database.jobs.enqueue(job)

    taken = await asyncio.gather(*(database.jobs.claim(CLAIM) for _ in range(5)))

    found = [one.job for one in taken if one is not None]
    assert sorted(found, key=lambda job: job.subject) == list(OTHERS)
    assert (await database.jobs.claim(CLAIM)) is None


async def test_a_job_of_a_kind_nobody_asked_for_waits(database: Database) -> None:
    await database.jobs.enqueue(Job("of another version", "1"))

    assert await database.jobs.claim(CLAIM) is None


async def test_a_finished_job_leaves_the_table_and_may_come_again(database: Database, database_url: str) -> None:
    await database.jobs.enqueue(JOB)
    taken = await take(database)

    await database.jobs.finish(taken.lease)

    assert await run_sql(database_url, "select from jobs") == []
    assert await database.jobs.enqueue(JOB)


async def test_a_job_put_back_stands_behind_those_that_wait_with_its_counts(database: Database) -> None:
    for job in (JOB, *OTHERS):
        await database.jobs.enqueue(job)
    first = await take(database)

    await database.jobs.put_back(first.lease, PutBack(failures=2, attempt=3))
    taken = [await take(database) for _ in range(4)]

    assert [one.job for one in taken] == [*OTHERS, JOB]
    assert (taken[-1].failures, taken[-1].attempt) == (2, 4)


async def test_a_job_put_back_for_later_is_not_taken_before(database: Database, database_url: str) -> None:
    await database.jobs.enqueue(JOB)
    taken = await take(database)
    await database.jobs.put_back(taken.lease, PutBack(timedelta(hours=1)))

    early = await database.jobs.claim(CLAIM)
    await run_sql(database_url, "update jobs set due_at = now()")

    assert early is None
    assert (await take(database)).job == JOB


async def test_further_rounds_come_behind_all_new_jobs_and_may_be_passed_over(database: Database) -> None:
    await database.jobs.enqueue(JOB)
    taken = await take(database)
    await database.jobs.put_back(taken.lease, PutBack(is_continued=True))
    await database.jobs.enqueue(OTHERS[0])

    new = await take(database)
    none = await database.jobs.claim(JobClaim("worker", 30, [JOB.kind], takes_continued=False))
    further = await take(database)

    assert (new.job, none, further.job, further.is_continued) == (OTHERS[0], None, JOB, True)


async def test_jobs_of_owners_who_have_their_share_are_passed_over(database: Database) -> None:
    anna, ben = UserId(new_id()), UserId(new_id())
    for owner_id, subject in ((anna, "1"), (ben, "2")):
        await database.jobs.enqueue(Job(JOB.kind, subject, owner_id))
    claim = JobClaim("worker", 30, [JOB.kind], full_owners=[anna])

    taken, none = await take(database, claim), await database.jobs.claim(claim)

    assert (taken.job, none) == (Job(JOB.kind, "2", ben), None)


async def test_work_by_the_clock_is_put_in_line_once_in_a_period_by_all_processes(
    database: Database, database_url: str
) -> None:
    async def nothing() -> None:
        pass

    schedules = [
        Schedule("hourly", timedelta(hours=1), nothing),
        Schedule("daily", timedelta(days=1), nothing, at=timedelta(hours=3, minutes=41)),
    ]
    await database.jobs.put_due(schedules)
    new = await run_sql(database_url, QUEUED)
    await run_sql(database_url, "update job_schedules set period = period - interval '1 day' where kind = 'daily'")

    await asyncio.gather(*(database.jobs.put_due(schedules) for _ in range(5)))
    (claimed,) = await asyncio.gather(database.jobs.claim(JobClaim("worker", 30, ["daily"])))
    await database.jobs.put_due(schedules)

    assert new == []
    assert claimed is not None
    assert await run_sql(database_url, QUEUED) == []
    times = "select kind, to_char(period at time zone 'UTC', 'MI') from job_schedules order by kind"
    assert await run_sql(database_url, times) == [("daily", "41"), ("hourly", "00")]
