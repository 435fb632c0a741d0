"""The queue of side jobs: part of the transaction it is used in, one job of a kind, nothing read from outside."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from pgqueuer import AsyncpgDriver, Queries
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder

from fakes.pooler import shared_address
from fakes.raw_sql import BACKENDS, run_sql, until_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.jobs.consumer import JobConsumer
from throughline.db.jobs.names import CHANNEL, queue_names
from throughline.db.jobs.queue import Again, Job, JobBook, Schedule, TakenJob, enqueue_job
from throughline.db.statements.sql import sql

JOB = Job("prepare_summary", "0190a6e0-0000-7000-8000-000000000001")
QUEUED = "select entrypoint, convert_from(payload, 'UTF8'), status::text from throughline_jobs.pgqueuer order by id"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=2, timeout_seconds=5))
    yield pool
    await pool.close()


@asynccontextmanager
async def taking(url: str, perform: Callable[[TakenJob], Awaitable[Again | None]]) -> AsyncIterator[JobConsumer]:
    consumer = JobConsumer(parse_address(url))
    running = asyncio.create_task(consumer.run(JobBook({JOB.kind: perform}), most_at_once=2))
    yield consumer
    consumer.close()
    async with asyncio.timeout(HANG_SECONDS):
        await running


async def until_empty(url: str) -> None:
    await until_sql(url, QUEUED, [])


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


async def test_a_job_is_there_once_its_transaction_is_and_holds_an_id_only(
    pool: ConnectionPool, database_url: str
) -> None:
    async def put(tx: Statements) -> bool:
        return await enqueue_job(tx, JOB)

    assert await Transactions(pool).run(put)

    assert await run_sql(database_url, QUEUED) == [(JOB.kind, JOB.subject, "queued")]


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


@pytest.mark.slow
async def test_a_job_that_takes_long_stays_with_the_process_that_does_it(database: Database, database_url: str) -> None:
    silence = timedelta(seconds=3)
    done: list[str] = []
    consumers = [JobConsumer(parse_address(database_url), given_up_after=silence) for _ in range(2)]

    async def perform(taken: TakenJob) -> None:
        for number in range(4):
            await asyncio.sleep(silence.total_seconds() / 3)
            await database.jobs.enqueue(Job("short", f"{number}"))  # wakes all processes
        done.append(taken.job.subject)

    async def perform_short(_taken: TakenJob) -> None:
        await asyncio.sleep(0)

    book = JobBook({JOB.kind: perform, "short": perform_short})
    tasks = [asyncio.create_task(one.run(book, most_at_once=2)) for one in consumers]
    await database.jobs.enqueue(JOB)
    await until_empty(database_url)
    for one in consumers:
        one.close()
    await asyncio.gather(*tasks)

    assert done == [JOB.subject]


async def test_a_job_is_done_once_and_leaves_the_table_and_may_come_again(
    database: Database, database_url: str
) -> None:
    done: list[TakenJob] = []

    async def perform(taken: TakenJob) -> None:
        done.append(taken)

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_empty(database_url)
        assert await database.jobs.enqueue(JOB)
        await until_empty(database_url)

    assert done == [TakenJob(JOB), TakenJob(JOB)]


async def test_a_job_to_be_tried_again_comes_back_with_its_counts(database: Database, database_url: str) -> None:
    tries: list[TakenJob] = []

    async def perform(taken: TakenJob) -> Again | None:
        tries.append(taken)
        failures = len(tries)
        return Again(timedelta(seconds=0.01), failures, lost=2) if failures < 3 else None

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_empty(database_url)

    assert tries == [TakenJob(JOB), TakenJob(JOB, 1, lost=2), TakenJob(JOB, 2, lost=2)]


async def test_a_job_handed_back_stands_behind_those_that_wait(database: Database, database_url: str) -> None:
    others = [Job(JOB.kind, f"{number}") for number in range(3)]
    done: list[Job] = []

    async def perform(taken: TakenJob) -> Again | None:
        done.append(taken.job)
        return Again(timedelta(0)) if len(done) == 1 else None

    for job in (JOB, *others):
        await database.jobs.enqueue(job)
    async with taking(database_url, perform):
        await until_empty(database_url)

    assert done == [JOB, *others, JOB]


async def test_a_job_is_counted_before_it_is_begun(database: Database, database_url: str) -> None:
    counted: list[object] = []

    async def perform(_taken: TakenJob) -> None:
        counted.extend(await run_sql(database_url, "select attempts from throughline_jobs.pgqueuer"))

    async with taking(database_url, perform):
        await database.jobs.enqueue(JOB)
        await until_empty(database_url)

    assert counted == [(1,)]


async def test_two_processes_share_the_jobs_and_do_each_once(database: Database, database_url: str) -> None:
    done: list[str] = []

    async def perform(taken: TakenJob) -> None:
        done.append(taken.job.subject)
        await asyncio.sleep(0)

    async with taking(database_url, perform), taking(database_url, perform):
        for number in range(20):
            await database.jobs.enqueue(Job(JOB.kind, str(number)))
        await until_empty(database_url)

    assert sorted(done, key=int) == [str(number) for number in range(20)]


async def test_taking_goes_on_after_its_connection_is_lost(database: Database, database_url: str) -> None:
    done: list[str] = []

    async def perform(taken: TakenJob) -> None:
        done.append(taken.job.subject)

    async with taking(database_url, perform) as consumer, asyncio.timeout(HANG_SECONDS):
        while not consumer.is_taking:
            await asyncio.sleep(0.01)
        ended = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline jobs'"
        cut = await run_sql(database_url, ended)
        await database.jobs.enqueue(JOB)
        await until_empty(database_url)

    assert (True,) in cut
    assert done == [JOB.subject]


async def test_what_is_done_by_the_clock_is_done_by_one_of_all_processes(database_url: str) -> None:
    runs: list[str] = []

    def book(name: str) -> JobBook:
        async def run() -> None:
            runs.append(name)

        return JobBook({}, (Schedule("tidy", "* * * * *", run),))

    soon = JobConsumer(parse_address(database_url))
    first = asyncio.create_task(soon.run(book("first"), most_at_once=1))
    await until_sql(database_url, "select 1 from throughline_jobs.pgqueuer_schedules")
    soon.close()
    await first
    await run_sql(database_url, "update throughline_jobs.pgqueuer_schedules set next_run = now()")

    consumers = [JobConsumer(parse_address(database_url)) for _ in range(2)]
    tasks = [asyncio.create_task(one.run(book(f"{n}"), most_at_once=1)) for n, one in enumerate(consumers)]
    async with asyncio.timeout(HANG_SECONDS):
        while not runs or not all(one.is_taking for one in consumers):
            await asyncio.sleep(0.02)
    for one in consumers:
        one.close()
    await asyncio.gather(*tasks)

    assert len(runs) == 1


async def test_the_frozen_schema_is_what_the_installed_pgqueuer_expects(database_url: str) -> None:
    names = queue_names()
    connection = await asyncpg.connect(**parse_address(database_url).arguments())
    queries = Queries(
        AsyncpgDriver(connection),
        qbe=QueryBuilderEnvironment(settings=names),
        qbq=QueryQueueBuilder(settings=names),
        qbs=QuerySchedulerBuilder(settings=names),
    )

    plan = await queries.plan_upgrade()
    await connection.close()

    assert plan.statements == ()


def test_other_peoples_variables_do_not_lead_to_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGQUEUER_PREFIX", "PGQUEUER_QUEUE_TABLE", "QUEUE_TABLE", "PGQUEUER_CHANNEL", "CHANNEL"):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("PGQUEUER_SCHEMA", "elsewhere")
    queue_names.cache_clear()

    names = queue_names()

    assert (names.channel, names.qualified.queue_table) == (CHANNEL, "throughline_jobs.pgqueuer")
    assert "elsewhere" not in re.sub(r"\s+", " ", QueryQueueBuilder(settings=names).build_enqueue_query("skip"))
