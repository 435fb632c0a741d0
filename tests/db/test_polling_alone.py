"""DATABASE_LISTEN=false: without LISTEN and NOTIFY, processes find by polling what others have done."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from fakes.conversations import open_conversation
from fakes.database_wire import database_wire
from fakes.event_log import MESSAGE_ID
from fakes.pooler import PROGRAM, pooler, urls_of
from fakes.raw_sql import BACKENDS, run_sql
from fakes.scripted_model import Hang, Say
from fakes.side_jobs import side_jobs
from fakes.stage import Stage, open_stage
from fakes.waiting import HANG_SECONDS, until
from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.pooler import check_urls
from throughline.db.database import Database, DatabaseConfig, DatabaseLocation, open_database
from throughline.domain.events import MessageDelta, NewEvent, RunEvent
from throughline.domain.run import Outcome, Run, RunStatus
from throughline.execution.poll_pace import SHORTEST_SECONDS, PollPace
from throughline.turn.follow_run import Following, Idle
from throughline.turn.worker.worker import Worker, WorkerConfig

LISTENERS = f"select from {BACKENDS} where application_name = 'throughline listener'"
LEASE_SECONDS = 600.0
"""A heartbeat that is hardly ever due: what stops a turn is found by polling."""


@pytest.fixture
async def processes(database_url: str) -> AsyncGenerator[tuple[Database, Database]]:
    """Two processes on one database, neither of which listens."""
    config = DatabaseConfig(url="", pool_size=5).at(urls_of_polling(database_url))
    async with AsyncExitStack() as opened:
        found = []
        for _ in range(2):
            found.append(await Database.open(config))
            opened.push_async_callback(found[-1].close)
        yield found[0], found[1]


def urls_of_polling(database_url: str) -> DatabaseUrls:
    return replace(DatabaseUrls(**urls_of(database_url)), listens=False)


async def submit_here(stage: Stage, here: Database) -> Run:
    """Submit in the process `here` a message to the session of the stage."""
    return await replace(stage, database=here).submit("anybody there?")


def worker_of(stage: Stage) -> Worker:
    config = WorkerConfig("test", lease_seconds=LEASE_SECONDS, grace_seconds=0.05)
    return Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), config)


async def ended(database: Database, run: Run) -> Run:
    async with asyncio.timeout(HANG_SECONDS):
        while not (found := await database.runs.get_run(run.owner_id, run.id)).status.is_final:
            await asyncio.sleep(0.01)
    return found


async def test_nobody_listens_and_nothing_is_notified(database_url: str) -> None:
    async with database_wire(database_url) as wire:
        database = await Database.open(DatabaseConfig(url=wire.url, listens=False))
        conversation = await open_conversation(database)
        claimed = await conversation.start()
        await database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), 1)
        listeners = await run_sql(database_url, LISTENERS)
        await database.close()

    assert listeners == []
    assert [text for text in wire.statements if "notify" in text.lower() or "listen" in text.lower()] == []
    assert database.notifier.is_as_set


async def test_a_reader_elsewhere_finds_the_events_and_the_end(processes: tuple[Database, Database]) -> None:
    here, elsewhere = processes
    conversation = await open_conversation(here)
    claimed = await conversation.start()
    seen: list[RunEvent] = []

    async def read() -> None:
        async for item in Following(elsewhere.followed_runs, time.monotonic).events(claimed.run):
            seen.extend(() if isinstance(item, Idle) else item)

    async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        await here.events.append_events(claimed.lease, [NewEvent(1, MessageDelta(MESSAGE_ID, "a word"))])
        await until(lambda: len(seen) == 1)
        await here.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), 2)

    assert [event.seq for event in seen] == [1, 2]


async def test_a_worker_elsewhere_finds_the_run(processes: tuple[Database, Database]) -> None:
    here, elsewhere = processes
    stage = await open_stage(elsewhere)
    stage.model.script(Say("here"))

    worker = worker_of(stage)

    async with worker.working():
        await until(lambda: worker.is_claiming)
        run = await submit_here(stage, here)
        found = await ended(here, run)

    assert found.status is RunStatus.SUCCEEDED


async def test_a_cancel_elsewhere_stops_the_turn(processes: tuple[Database, Database]) -> None:
    here, elsewhere = processes
    stage = await open_stage(elsewhere)
    stage.model.script(Hang("a word"))

    async with worker_of(stage).working():
        run = await submit_here(stage, here)
        await until(lambda: bool(stage.model.requests))
        await here.runs.request_cancel(run.owner_id, run.id)
        found = await ended(here, run)

    assert found.status is RunStatus.CANCELLED


async def test_an_erased_session_elsewhere_stops_the_turn(processes: tuple[Database, Database]) -> None:
    here, elsewhere = processes
    stage = await open_stage(elsewhere)
    stage.model.script(Hang("a word"))
    worker = worker_of(stage)

    async with worker.working():
        run = await submit_here(stage, here)
        await until(lambda: bool(stage.model.requests))
        await here.sessions.delete(run.owner_id, run.session_id)
        await until(lambda: worker.open_turns == 0)

    assert await here.followed_runs.find(run.id) is None


def test_pauses_grow_with_the_time_in_which_nothing_changes() -> None:
    now = [0.0]
    pace = PollPace(1.0, lambda: now[0])

    found = []
    for now[0] in (0.0, 6.0, 15.0, 60.0, 3600.0):
        found.append(pace.seconds())
    pace.restart()

    assert found == [SHORTEST_SECONDS, SHORTEST_SECONDS, 0.25, 1.0, 1.0]
    assert pace.seconds() == SHORTEST_SECONDS


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")
async def test_a_pooler_in_transaction_mode_is_enough(server_url: str, database_url: str) -> None:
    with pooler(server_url, size=2) as bouncer:
        where = DatabaseLocation(bouncer.url(database_url), listens=False)
        async with open_database(where, DatabaseConfig(url="", pool_size=5), migrate=False) as database:
            conversation = await open_conversation(database)
            claimed = await conversation.start()
            renewed = await database.runs.renew([claimed.lease], LEASE_SECONDS)
            await database.runs.finish(claimed.lease, Outcome(RunStatus.SUCCEEDED), (), 1)
            await database.check_ready()

    assert set(renewed) == {claimed.lease}


async def test_the_server_itself_is_no_pooler(database_url: str) -> None:
    assert not (await check_urls(urls_of_polling(database_url))).has_only_pooler
