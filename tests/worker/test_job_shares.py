"""Places for side jobs: of one owner, of further rounds, what is counted of them, and readiness while none is taken."""

import asyncio
from collections import Counter
from datetime import timedelta
from heapq import heappop, heappush

from fakes.compactions import fill
from fakes.manual_clock import ManualClock
from fakes.raw_sql import BACKENDS, run_sql
from fakes.scripted_model import Say
from fakes.side_jobs import do_summary_job, doing, side_jobs, until_jobs
from fakes.stage import open_stage, with_context
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import parse_address
from throughline.db.database import Database
from throughline.db.jobs.consumer import JobConsumer
from throughline.db.jobs.queue import Job, JobBook, Waiting
from throughline.worker.jobs import LONGEST_SILENCE_SECONDS, NotDone
from throughline.worker.shares import PAUSE_EACH, Shares

SUMMARY = "## Intent\nThe user counts [#1-#2]."


async def until_taking(consumer: JobConsumer, *, is_taking: bool) -> None:
    while consumer.is_taking is not is_taking:
        await asyncio.sleep(0)


def test_who_finds_no_place_comes_when_nobody_else_of_the_owner_does() -> None:
    clock = ManualClock()
    shares = Shares(2, clock.monotonic)
    assert [shares.take("anna"), shares.take("anna"), shares.take("ben")] == [None] * 3

    pauses = [shares.take("anna") for _ in range(1000)]

    assert pauses == [PAUSE_EACH * number for number in range(1, 1001)]


def test_ten_thousand_jobs_of_one_owner_ask_four_times_a_second() -> None:
    clock, places = ManualClock(), 8
    shares = Shares(places, clock.monotonic)
    waiting = [(0.0, number) for number in range(10_000)]
    ends: list[float] = []
    refused: Counter[int] = Counter()
    while waiting:
        due, number = heappop(waiting)
        clock.advance(max(due - clock.monotonic(), 0))
        while ends and ends[0] <= clock.monotonic():
            heappop(ends)
            shares.give_back("anna")
        if (delay := shares.take("anna")) is None:
            heappush(ends, clock.monotonic() + 3 + number % 7)
        else:
            refused[int(clock.monotonic())] += 1
            heappush(waiting, (clock.monotonic() + delay.total_seconds(), number))
    first = refused.pop(0)

    assert first <= 10_000 - places + 4
    assert max(refused.values()) <= 5  # four, and one that falls on either side of a second
    assert clock.monotonic() < 10_000 * 9 / places  # the places are hardly ever left empty


def test_a_place_that_is_given_back_is_there_for_the_next_one() -> None:
    shares = Shares(1, ManualClock().monotonic)
    shares.take("anna")
    assert shares.take("anna") == PAUSE_EACH

    shares.give_back("anna")

    assert shares.take("anna") is None


def test_who_was_told_to_come_later_is_counted_on_while_nobody_has_a_place() -> None:
    clock = ManualClock()
    shares = Shares(1, clock.monotonic)
    for _ in range(100):
        shares.take("anna")
        shares.take("anna")
        shares.give_back("anna")
    shares.take("anna")

    assert shares.take("anna") == PAUSE_EACH * 101


async def test_an_owner_whose_share_is_taken_waits_and_nothing_is_asked_of_a_model(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(min_recent_messages=2, max_messages_before_summary=10))
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 6)
    shares = Shares(1, ManualClock().monotonic)
    shares.take(stage.owner_id)

    left = await do_summary_job(stage, shares)
    shares.give_back(stage.owner_id)
    done = await do_summary_job(stage, shares)

    assert left == NotDone(PAUSE_EACH, was_begun=False)
    assert done is None
    assert len(stage.model.requests) == 1


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
    rounds_begun: list[str] = []
    ended: list[str] = []
    gate = asyncio.Event()

    async def work(subject: str) -> NotDone | None:
        if subject != "new":
            if subject not in rounds_begun:
                rounds_begun.append(subject)
                return NotDone()
            await gate.wait()
        ended.append(subject)
        return None

    async with doing(side_jobs(stage, {"work": work}, concurrency=2)):
        for subject in ("first", "second"):
            await database.jobs.enqueue(Job("work", subject))
        async with asyncio.timeout(HANG_SECONDS):
            while "no_place" not in [row["outcome"] for row in stage.metrics.of("job_ended")]:
                await asyncio.sleep(0.01)
            await database.jobs.enqueue(Job("work", "new"))
            await until(lambda: bool(ended))
        gate.set()
        await until_jobs(database_url, [])

    assert ended[0] == "new"
    assert sorted(ended[1:]) == ["first", "second"]


async def test_waiting_jobs_are_counted_by_kind_with_the_age_of_the_oldest_that_is_due(
    database: Database, database_url: str
) -> None:
    for kind, subject in (("work", "1"), ("work", "2"), ("later", "3")):
        await database.jobs.enqueue(Job(kind, subject))
    await run_sql(
        database_url,
        "update throughline_jobs.pgqueuer set created = now() - interval '90 seconds', execute_after = case entrypoint "
        "when 'later' then now() + interval '1 hour' else now() - interval '90 seconds' end",
    )

    found = {waiting.kind: waiting for waiting in await database.jobs.waiting()}

    assert found["later"] == Waiting("later", 1, 0.0)
    assert found["work"].jobs == 2
    assert 90 <= found["work"].oldest_seconds < 90 + HANG_SECONDS


async def test_readiness_outlasts_a_connection_that_is_begun_anew(database_url: str) -> None:
    consumer = JobConsumer(parse_address(database_url))
    assert not consumer.has_taken_within(LONGEST_SILENCE_SECONDS)
    running = asyncio.create_task(consumer.run(JobBook({}), most_at_once=1))
    async with asyncio.timeout(HANG_SECONDS):
        await until_taking(consumer, is_taking=True)
        ended = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline jobs'"
        await run_sql(database_url, ended)
        await until_taking(consumer, is_taking=False)
        lost = consumer.has_taken_within(timedelta(minutes=1).total_seconds())
    consumer.close()
    await running

    assert lost
    assert not consumer.has_taken_within(LONGEST_SILENCE_SECONDS)
