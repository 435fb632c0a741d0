"""How a job ends: only for the process that holds it, and never by an accident on the way."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.side_jobs import doing, side_jobs, until_jobs
from fakes.stage import open_stage
from fakes.waiting import until
from throughline.db.database import Database
from throughline.db.job_queue import ENQUEUE_SUMMARY, Job, JobClaim, JobQueue, PutBack
from throughline.domain.run import RowLease
from throughline.turn.worker.jobs import NotDone

JOB = Job("prepare_summary", "0190a6e0-0000-7000-8000-000000000001")
CLAIM = JobClaim("worker", lease_seconds=30, kinds=[JOB.kind])
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
