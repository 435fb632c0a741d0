"""Taking jobs while the database fails now and then: what goes on, what is cut, and what is said of it meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from fakes.raw_sql import BACKENDS, run_sql
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import parse_address
from throughline.db.database import Database
from throughline.db.jobs import held_jobs
from throughline.db.jobs import taking as taking_jobs
from throughline.db.jobs.consumer import JobConsumer
from throughline.db.jobs.held_jobs import MOST_MISSED
from throughline.db.jobs.queue import Job, JobBook, Schedule, TakenJob

JOB = Job("work", "1")
REFUSE_TAKING = """
    create function refuse() returns trigger as $$ begin
        if nextval('tries') <= {times} then raise exception 'on purpose'; end if;
        return new;
    end $$ language plpgsql
"""
REFUSING = """
    create trigger refusing before insert on throughline_jobs.pgqueuer_log for each row
    when (new.status = 'picked') execute function refuse()
"""
DUE = "update throughline_jobs.pgqueuer_schedules set next_run = now()"


async def refuse_taking(url: str, times: int) -> None:
    """Have the next attempts to take a job fail."""
    await run_sql(url, "create sequence tries")
    await run_sql(url, REFUSE_TAKING.format(times=times))
    await run_sql(url, REFUSING)


class Held:
    """Work by the clock that goes on until it is cut, and jobs that are counted; `slow` ones go on as well."""

    def __init__(self) -> None:
        self.begun, self.cut = asyncio.Event(), asyncio.Event()
        self.slow_begun, self.slow_cut = asyncio.Event(), asyncio.Event()
        self.taken: list[str] = []

    async def tidy(self) -> None:
        await self._hang(self.begun, self.cut)

    async def perform(self, taken: TakenJob) -> None:
        self.taken.append(taken.job.subject)
        if taken.job.subject == "slow" and not self.slow_cut.is_set():
            await self._hang(self.slow_begun, self.slow_cut)

    async def _hang(self, begun: asyncio.Event, cut: asyncio.Event) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()


@asynccontextmanager
async def taking(url: str, held: Held) -> AsyncIterator[JobConsumer]:
    """Take jobs in the block, with work by the clock under way."""
    consumer = JobConsumer(parse_address(url), given_up_after=timedelta(seconds=1))
    book = JobBook({JOB.kind: held.perform}, (Schedule("tidy", "0 0 1 1 *", held.tidy),))
    first = asyncio.create_task(JobConsumer.run(other := JobConsumer(parse_address(url)), book, most_at_once=2))
    await until(lambda: other.is_taking)
    other.close()
    await first  # so the time of the work is known to the database
    await run_sql(url, DUE)
    running = asyncio.create_task(consumer.run(book, most_at_once=4))
    async with asyncio.timeout(HANG_SECONDS):
        await held.begun.wait()
        yield consumer
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it tried again soon what failed."""
    monkeypatch.setattr(held_jobs, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(held_jobs, "NOT_BEGUN", timedelta(seconds=0.2))
    monkeypatch.setattr(taking_jobs, "POLL", timedelta(seconds=0.2))


@pytest.mark.parametrize("times", [1, MOST_MISSED + 1])
async def test_a_few_questions_without_an_answer_end_nothing_and_are_asked_again(
    database: Database, database_url: str, times: int
) -> None:
    held = Held()
    async with taking(database_url, held):
        await database.jobs.enqueue(Job(JOB.kind, "slow"))
        await held.slow_begun.wait()
        await refuse_taking(database_url, times=times)

        await database.jobs.enqueue(JOB)
        await until(lambda: held.taken == ["slow", "1"])

        assert not held.cut.is_set()
        assert not held.slow_cut.is_set()


async def test_a_connection_that_is_silent_for_long_is_begun_anew_whatever_is_in_hand(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_jobs, "LONGEST_MISSED_SECONDS", 0.5)
    held = Held()
    async with taking(database_url, held) as consumer:
        await until(lambda: consumer.is_taking)
        await refuse_taking(database_url, times=1_000_000)

        await database.jobs.enqueue(JOB)
        await held.cut.wait()
        was_taking = consumer.is_taking
        await run_sql(database_url, "drop trigger refusing on throughline_jobs.pgqueuer_log")
        await until(lambda: held.taken == ["1"])

    assert not was_taking


@pytest.mark.slow
async def test_what_is_in_hand_is_cut_with_its_connection_and_the_job_is_taken_again(
    database: Database, database_url: str
) -> None:
    held = Held()
    async with taking(database_url, held):
        await database.jobs.enqueue(Job(JOB.kind, "slow"))
        await held.slow_begun.wait()
        await run_sql(
            database_url,
            f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline jobs'",
        )

        await held.cut.wait()
        await held.slow_cut.wait()
        await until(lambda: len(held.taken) > 1)

    assert held.taken == ["slow", "slow"]


async def test_who_was_never_answered_has_taken_nothing(database_url: str) -> None:
    await run_sql(database_url, "alter table throughline_jobs.pgqueuer_statistics rename to away")
    consumer = JobConsumer(parse_address(database_url))
    with capture_logs() as logs:
        running = asyncio.create_task(consumer.run(JobBook({}), most_at_once=1))
        await until(lambda: len([line for line in logs if line["event"].startswith("taking jobs broke")]) > 1)
        has_taken = consumer.has_taken_within(timedelta(days=1).total_seconds())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert not has_taken
