"""The queue of side jobs: part of the transaction it is used in, one job of a kind and subject, one order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.conversations import Conversation, answer_message
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.side_jobs import doing, side_jobs, until_jobs
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.branch import NewBranch
from throughline.db.sessions.import_messages import Imported
from throughline.db.side_jobs import ENQUEUE_SUMMARY, Job, JobClaim, JobQueue, PutBack, Schedule, TakenJob, enqueue_job
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import UserId
from throughline.domain.message import Source
from throughline.domain.run import Outcome, RowLease, RunStatus
from throughline.turn.worker.jobs import NotDone

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


async def _nothing() -> None:
    pass


HOURLY = Schedule("hourly", timedelta(hours=1), _nothing)


async def put_back(conversation: Conversation) -> None:
    taken = await take(conversation.database)
    await conversation.database.jobs.put_back(taken.lease, PutBack())


async def finish_while_asked_again(conversation: Conversation) -> None:
    taken = await take(conversation.database)
    await conversation.database.jobs.enqueue(JOB)
    await conversation.database.jobs.finish(taken.lease)


async def import_a_session(conversation: Conversation) -> None:
    new = Imported(conversation.owner_id, "assistant", "", Source.API, {})
    await conversation.database.sessions.import_conversation(new, [])


async def branch(conversation: Conversation) -> None:
    new = NewBranch(conversation.owner_id, conversation.session.id, at=1, source=Source.API)
    await conversation.database.sessions.branch(new)


async def end_a_turn_that_makes_a_summary_due(conversation: Conversation) -> None:
    claimed = await conversation.start()
    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), is_summary_due=True)
    await conversation.database.runs.finish(claimed.lease, outcome, (), 1)


async def adopt_a_summary(conversation: Conversation) -> None:
    await conversation.adopt((await conversation.messages())[0])


WAYS: dict[str, Callable[[Conversation], Awaitable[object]]] = {
    "enqueued": lambda conversation: conversation.database.jobs.enqueue(OTHERS[0]),
    "put back": put_back,
    "asked for again": finish_while_asked_again,
    "of a period": lambda conversation: conversation.database.jobs.put_due([HOURLY]),
    "of an import": import_a_session,
    "of a branch": branch,
    "of a turn": end_a_turn_that_makes_a_summary_due,
    "of an adoption": adopt_a_summary,
    "of a request": lambda conversation: conversation.database.summaries.ask_for_next(conversation.session.id),
    "of the index": lambda conversation: conversation.database.history.enqueue_indexing(),
}


@pytest.mark.listening("it waits for the listener")
@pytest.mark.parametrize("way", WAYS)
async def test_a_job_that_can_be_claimed_wakes_the_processes_that_take_jobs(
    conversation: Conversation, database_url: str, way: str
) -> None:
    await conversation.say("hello")
    await run_sql(database_url, "update sessions set unindexed_since = now() - interval '1 day'")
    await conversation.database.jobs.enqueue(JOB)
    await conversation.database.jobs.put_due([HOURLY])
    await run_sql(database_url, "update job_schedules set period = period - interval '1 day'")
    elsewhere = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1))
    databases = (conversation.database, elsewhere)
    await until(lambda: all(database.notifier.is_listening for database in databases))
    for database in databases:
        while await database.jobs.work.wait(0.1):  # a new connection wakes, too
            pass

    await WAYS[way](conversation)

    assert [await database.jobs.work.wait(HANG_SECONDS) for database in databases] == [True, True]
    await elsewhere.close()


async def test_a_transaction_that_queues_a_job_notifies_nobody_itself(database_url: str) -> None:
    found = await run_sql(database_url, "select proname from pg_proc where prosrc ilike '%pg_notify(%'")

    assert found == []


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
    schedules = [HOURLY, Schedule("daily", timedelta(days=1), _nothing, at=timedelta(hours=3, minutes=41))]
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


OVER = "update jobs set lease_until = now() - interval '1 second'"
ROWS = "select lease_until is not null, worker, fence, attempt from jobs"
BLOCKED = f"select 1 from {BACKENDS} where wait_event_type = 'Lock' and application_name like 'throughline%'"
REFUSE = "create function refuse() returns trigger as $$ begin raise exception 'on purpose'; end $$ language plpgsql"
REFUSING = """
    create trigger refusing before {change} on jobs for each row {condition} execute function refuse()
"""
ALLOW = "drop trigger refusing on jobs"
End = Callable[[JobQueue, RowLease], Awaitable[None]]
ENDS: list[End] = [
    lambda jobs, lease: jobs.finish(lease),
    lambda jobs, lease: jobs.finish(lease, has_failed=True),
    lambda jobs, lease: jobs.put_back(lease, PutBack()),
]


async def claim(database: Database, worker: str = "worker") -> RowLease:
    taken = await database.jobs.claim(JobClaim(worker, 30, [JOB.kind]))
    assert taken is not None
    return taken.lease


@pytest.mark.parametrize("end", ENDS, ids=["done", "given up", "put back"])
async def test_a_job_that_another_process_has_taken_over_is_left_to_it(
    database: Database, database_url: str, end: End
) -> None:
    await database.jobs.enqueue(JOB)
    late = await claim(database)
    await run_sql(database_url, OVER)
    await claim(database, "another")

    await end(database.jobs, late)

    assert await run_sql(database_url, ROWS) == [(True, "another", 2, 2)]
    assert await run_sql(database_url, "select from failed_jobs") == []
    assert not await database.jobs.enqueue(JOB)


@pytest.mark.parametrize("end", ENDS, ids=["done", "given up", "put back"])
async def test_ending_a_job_twice_ends_it_once(database: Database, database_url: str, end: End) -> None:
    await database.jobs.enqueue(JOB)
    lease = await claim(database)

    await end(database.jobs, lease)
    once = await run_sql(database_url, "select fence, seq from jobs"), await run_sql(database_url, "table failed_jobs")
    await end(database.jobs, lease)

    twice = await run_sql(database_url, "select fence, seq from jobs"), await run_sql(database_url, "table failed_jobs")
    assert twice == once


async def test_only_what_is_still_held_is_renewed(database: Database, database_url: str) -> None:
    for subject in ("mine", "theirs"):
        await database.jobs.enqueue(Job(JOB.kind, subject))
    mine, lost = await claim(database), await claim(database)
    await run_sql(database_url, f"{OVER} where subject = 'theirs'")
    await claim(database, "another")

    found = await database.jobs.renew([mine, lost], 600)

    assert found.keys() == {mine}
    fresh = "select subject from jobs where lease_until > now() + interval '5 minutes'"
    assert await run_sql(database_url, fresh) == [("mine",)]


@pytest.mark.parametrize("records", [0, 1])
async def test_a_job_that_is_asked_for_while_it_is_done_goes_back_into_the_line(
    database: Database, database_url: str, records: int
) -> None:
    await database.jobs.enqueue(JOB)
    lease = await claim(database)

    was_put = [await database.jobs.enqueue(JOB), await database.jobs.enqueue(JOB)]
    await database.jobs.finish(lease, has_failed=records > 0)
    again = await claim(database)
    await database.jobs.finish(again)

    assert was_put == [False, False]
    assert await run_sql(database_url, ROWS) == []
    assert len(await run_sql(database_url, "select from failed_jobs")) == records


async def test_a_job_is_not_missed_that_is_asked_for_in_a_commit_while_it_ends(
    database: Database, database_url: str
) -> None:
    await database.jobs.enqueue(JOB)
    lease = await claim(database)
    row = f"select cast('{JOB.subject}' as uuid) as session_id, cast(null as uuid) as owner_id"

    async with hold_rows(database_url, f"with due as ({row}) {ENQUEUE_SUMMARY}"):
        ending = asyncio.create_task(database.jobs.finish(lease))
        await until_sql(database_url, BLOCKED)
    await ending

    assert await run_sql(database_url, ROWS) == [(False, None, 1, 0)]


@pytest.mark.parametrize(
    ("change", "condition", "left"),
    [
        ("delete", "", []),
        ("update", "when (old.lease_until is not null and new.lease_until is null)", ["queued"]),
    ],
)
async def test_an_end_that_cannot_be_stored_is_tried_again_and_nothing_is_done_twice(
    database: Database, database_url: str, change: str, condition: str, left: list[str]
) -> None:
    done: list[str] = []

    async def work(subject: str) -> NotDone | None:
        done.append(subject)
        return NotDone(has_failed=True) if left and len(done) == 1 else None

    await run_sql(database_url, REFUSE)
    await run_sql(database_url, REFUSING.format(change=change, condition=condition))
    async with doing(side_jobs(await open_stage(database), {"work": work})):
        await database.jobs.enqueue(Job("work", "1"))
        await until(lambda: bool(done))
        while_refused = await run_sql(database_url, "select lease_until is not null from jobs")
        await run_sql(database_url, ALLOW)
        await until_jobs(database_url, [])

    assert while_refused == [(True,)]
    assert len(done) == 1 + len(left)


async def test_a_job_whose_lease_is_lost_is_stopped_and_left_to_the_other_process(
    database: Database, database_url: str
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def hang(_subject: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with doing(side_jobs(await open_stage(database), {"work": hang}, lease_seconds=0.3)):
        await database.jobs.enqueue(Job("work", "1"))
        await until(begun.is_set)
        await run_sql(
            database_url,
            "update jobs set worker = 'another', fence = fence + 1, lease_until = now() + interval '1 day'",
        )
        await until(stopped.is_set)

    assert await run_sql(database_url, ROWS) == [(True, "another", 2, 1)]
