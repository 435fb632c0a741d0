"""Places for side jobs: of one owner, of further rounds, of work by the clock; what is counted, and readiness."""

import asyncio
from collections import Counter
from datetime import timedelta

from structlog.testing import capture_logs

from fakes.raw_sql import run_sql
from fakes.side_jobs import doing, side_jobs, until_jobs
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS, until
from throughline.db.database import Database
from throughline.db.job_queue import Job, Schedule, Waiting
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import UserId
from throughline.turn.worker.jobs import NotDone


async def test_an_owner_has_a_quarter_of_the_places_and_another_finds_one(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    anna, ben = UserId(new_id()), UserId(new_id())
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    gate = asyncio.Event()

    async def work(subject: str) -> None:
        owner = subject[0]
        under_way[owner] += 1
        most[owner] = max(most[owner], under_way[owner])
        await gate.wait()
        under_way[owner] -= 1

    for number in range(20):
        await database.jobs.enqueue(Job("work", f"a{number}", anna))
    await database.jobs.enqueue(Job("work", "b", ben))
    async with doing(side_jobs(stage, {"work": work}, concurrency=8)):
        await until(lambda: under_way == {"a": 2, "b": 1})
        gate.set()
        await until_jobs(database_url, [])

    assert most == {"a": 2, "b": 1}


async def test_further_rounds_come_behind_what_was_put_in_line_later(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    done: list[str] = []

    async def work(subject: str) -> NotDone | None:
        done.append(subject)
        if subject == "long" and done.count("long") == 1:
            for number in range(3):
                await database.jobs.enqueue(Job("work", f"{number}"))
        return NotDone() if subject == "long" and done.count("long") < 3 else None

    await database.jobs.enqueue(Job("work", "long"))
    async with doing(side_jobs(stage, {"work": work}, concurrency=1)):
        await until_jobs(database_url, [])

    assert done[0] == "long"
    assert done[-1] == "long"
    assert sorted(done) == ["0", "1", "2", "long", "long", "long"]
    ended = [(row["kind"], row["outcome"]) for row in stage.metrics.of("job_ended")]
    assert sorted(ended) == [("work", "continued")] * 2 + [("work", "done")] * 4


async def test_further_rounds_leave_places_to_others(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    begun: Counter[str] = Counter()
    ended: list[str] = []
    gate = asyncio.Event()

    async def work(subject: str) -> NotDone | None:
        begun[subject] += 1
        if subject != "new":
            if begun[subject] == 1:
                return NotDone()
            await gate.wait()
        ended.append(subject)
        return None

    async with doing(side_jobs(stage, {"work": work}, concurrency=2)):
        for subject in ("first", "second"):
            await database.jobs.enqueue(Job("work", subject))
        await until(lambda: sorted(begun.values()) == [1, 2])
        await database.jobs.enqueue(Job("work", "new"))
        await until(lambda: bool(ended))
        gate.set()
        await until_jobs(database_url, [])

    assert ended[0] == "new"
    assert sorted(ended[1:]) == ["first", "second"]


async def test_work_by_the_clock_takes_no_place_of_other_jobs(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    gate = asyncio.Event()
    begun: list[str] = []

    async def tidy() -> None:
        begun.append("tidy")
        await gate.wait()

    async def work(subject: str) -> None:
        begun.append(subject)
        await gate.wait()

    await database.jobs.enqueue(Job("tidy", ""))
    for subject in ("1", "2"):
        await database.jobs.enqueue(Job("work", subject))
    schedule = Schedule("tidy", timedelta(days=1), tidy)
    async with doing(side_jobs(stage, {"work": work}, concurrency=2, schedules=[schedule])):
        await until(lambda: len(begun) == 3)
        gate.set()
        await until_jobs(database_url, [])

    assert sorted(begun) == ["1", "2", "tidy"]


async def test_waiting_jobs_are_counted_by_kind_with_the_age_of_the_oldest_that_is_due(
    database: Database, database_url: str
) -> None:
    for kind, subject in (("work", "1"), ("work", "2"), ("later", "3")):
        await database.jobs.enqueue(Job(kind, subject))
    await run_sql(
        database_url,
        "update jobs set created_at = now() - interval '90 seconds', due_at = case kind "
        "when 'later' then now() + interval '1 hour' else now() - interval '90 seconds' end",
    )

    found = {waiting.kind: waiting for waiting in await database.jobs.waiting()}

    assert found["later"] == Waiting("later", 1, 0.0)
    assert found["work"].jobs == 2
    assert 90 <= found["work"].oldest_seconds < 90 + HANG_SECONDS


async def test_readiness_outlasts_a_claim_that_fails_and_ends_with_the_loop(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    jobs = side_jobs(stage, {"work": lambda _: asyncio.sleep(0)})
    before = jobs.is_taking
    async with doing(jobs):
        await until(lambda: jobs.is_taking)
        with capture_logs() as logs:
            await run_sql(database_url, "alter table jobs rename to away")
            await until(lambda: any(line["event"] == "claim failed" for line in logs))
            during = jobs.is_taking
        await run_sql(database_url, "alter table away rename to jobs")

    assert (before, during, jobs.is_taking) == (False, True, False)
