"""The way in for other programs: submit, follow, await and stop runs, over the database alone."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.scripted_model import Fail, Hang, Say
from fakes.side_jobs import side_jobs
from fakes.stage import Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.client import (
    Client,
    EventType,
    Limits,
    NotAnswered,
    OnBusy,
    Reasoning,
    ReasoningDelta,
    RunEvent,
    RunStatus,
    connect,
)
from throughline.db.database import Database
from throughline.domain.errors import (
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    ModelRefused,
    NotFound,
    NoWorkerAvailable,
    SessionBusy,
)
from throughline.turn.worker.worker import Worker, WorkerConfig


def connect_to(
    database_url: str, *, user: str = "local", pool_size: int = 4, limits: Limits | None = None
) -> AbstractAsyncContextManager[Client]:
    urls = urls_of(database_url)
    return connect(
        urls["url"], direct_url=urls["direct_url"], user=user, pool_size=pool_size, limits=limits or Limits()
    )


@pytest.fixture
async def stage(database: Database) -> Stage:
    """A worker's side of the database, in a process's stead."""
    return await open_stage(database)


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[Client]:
    async with connect_to(database_url, user="anna") as opened:
        yield opened


async def test_reasoning_is_followed_and_read_where_it_is_asked_for(stage: Stage, client: Client) -> None:
    stage.model.script(Say("Hello.", thinks="They greet me."))
    session = await client.new_session("assistant")
    run = await client.submit(session.id, "hi")

    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        shown = [event.event.text async for event in client.events(run.id) if isinstance(event.event, ReasoningDelta)]

    assert "".join(shown) == "They greet me."
    assert [message.reasoning async for message in client.history(session.id)] == [None, None]
    asked = [message.reasoning async for message in client.history(session.id, include_reasoning=True)]
    assert asked == [None, Reasoning("They greet me.")]


def worker_of(stage: Stage) -> Worker:
    config = WorkerConfig(name="elsewhere", lease_seconds=3)
    return Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), config)


async def types_of(events: AsyncIterator[RunEvent]) -> list[EventType]:
    return [event.type async for event in events]


async def test_a_message_is_answered_by_a_worker_elsewhere_and_its_run_followed(stage: Stage, client: Client) -> None:
    stage.model.script(Say("forty-two"))
    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        session = await client.new_session()
        run = await client.submit(session.id, "what is it?")
        types = await types_of(client.events(run.id))
        ended = await client.wait(run.id)

    assert (ended.run.status, ended.text, ended.answer()) == (RunStatus.SUCCEEDED, "forty-two", "forty-two")
    assert types[0] is EventType.RUN_STARTED
    assert types[-1] is EventType.RUN_COMPLETED
    assert [message.author async for message in client.history(session.id)] == ["anna", None]


async def test_following_goes_on_behind_the_last_event_seen(stage: Stage, client: Client, database_url: str) -> None:
    stage.model.script(Say("hello"))
    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        seen = [event async for event in client.events(run.id)]
        async with connect_to(database_url, user="anna") as elsewhere:
            rest = [event async for event in elsewhere.events(run.id, after=2)]
            nothing = [event async for event in elsewhere.events(run.id, after=seen[-1].seq)]

    assert rest == seen[2:]
    assert nothing == []


async def test_events_that_are_gone_are_told_again_from_what_is_stored(
    stage: Stage, client: Client, database_url: str
) -> None:
    stage.model.script(Say("hello"))
    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        run = (await client.wait(run.id)).run
        await run_sql(database_url, "delete from run_events")
        types = await types_of(client.events(run.id, after=2))

    assert types[0] is EventType.RESET
    assert types[-1] is EventType.RUN_COMPLETED


async def test_the_same_key_is_the_same_session_and_the_same_run(client: Client) -> None:
    sessions = [await client.new_session(idempotency_key="s") for _ in range(2)]
    runs = [await client.submit(sessions[0].id, "hi", idempotency_key="r") for _ in range(2)]

    assert sessions[0].id == sessions[1].id
    assert runs[0].id == runs[1].id
    with pytest.raises(IdempotencyKeyReused):
        await client.submit(sessions[0].id, "something else", idempotency_key="r")


async def test_a_failed_run_ends_without_a_message_and_says_why(stage: Stage, client: Client) -> None:
    stage.model.script(Fail(ModelRefused("No.")))
    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        ended = await client.wait(run.id)

    assert (ended.run.status, ended.text) == (RunStatus.FAILED, "")
    assert ended.run.error is not None
    with pytest.raises(NotAnswered, match=f"{run.id} failed.*model_refused"):
        ended.answer()


async def test_a_cancelled_run_keeps_what_was_written(stage: Stage, client: Client) -> None:
    stage.model.script(Hang("half an"))
    async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
        run = await client.submit((await client.new_session()).id, "hi")
        async for event in client.events(run.id):
            if event.type is EventType.MESSAGE_DELTA:
                await client.cancel(run.id)
        ended = await client.wait(run.id)

    assert (ended.run.status, ended.text) == (RunStatus.CANCELLED, "half an")
    with pytest.raises(NotAnswered, match=f"{run.id} was cancelled"):
        ended.answer()


async def test_a_busy_session_refuses_where_asked_to(client: Client) -> None:
    session = await client.new_session()
    first = await client.submit(session.id, "one")

    with pytest.raises(SessionBusy) as refused:
        await client.submit(session.id, "two", on_busy=OnBusy.REJECT)

    assert refused.value.run_id == str(first.id)


async def test_without_any_worker_waiting_is_given_up_and_the_message_kept(client: Client, database_url: str) -> None:
    run = await client.submit((await client.new_session()).id, "anybody?")

    async with connect_to(database_url, user="anna", limits=Limits(no_worker_timeout_seconds=0.01)) as impatient:
        with pytest.raises(NoWorkerAvailable, match=str(run.id)):
            await impatient.wait(run.id)

    assert (await client.get_run(run.id)).status is RunStatus.QUEUED


async def test_nobody_reaches_another_users_data(client: Client, database_url: str) -> None:
    session = await client.new_session()
    run = await client.submit(session.id, "mine")

    async with connect_to(database_url, user="berta") as other:
        for reach in (other.get_run(run.id), other.cancel(run.id), other.submit(session.id, "hi"), other.wait(run.id)):
            with pytest.raises(NotFound):
                await reach
        for read in (other.history(session.id), other.events(run.id)):
            with pytest.raises(NotFound):
                await anext(read)


async def test_a_session_is_opened_once_for_an_external_id(client: Client, database_url: str) -> None:
    made = await asyncio.gather(*(client.get_or_create_session("order 7", title=str(n)) for n in range(5)))
    await run_sql(database_url, "update sessions set archived = true")

    found = await client.get_or_create_session("order 7", "researcher", metadata={"a": 1})
    other = await (await client.acting_as("berta")).get_or_create_session("order 7")

    assert {session.id for session in made} == {found.id}
    assert (found.external_id, found.agent, found.archived, found.metadata) == ("order 7", "assistant", True, {})
    assert other.id != found.id


async def test_sessions_are_found_by_their_metadata(client: Client) -> None:
    made = [await client.new_session(metadata={"project": name, "n": 1}) for name in ("atlas", "other")]

    assert [session.id async for session in client.sessions(metadata={"project": "atlas"})] == [made[0].id]


async def test_a_blank_message_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInput):
        await client.submit((await client.new_session()).id, " \n")


async def test_a_schema_that_is_not_current_is_refused_and_left_alone(empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="db upgrade"):
        await connect_to(empty_database_url).__aenter__()

    assert await run_sql(empty_database_url, "select 1 from pg_tables where schemaname = 'public'") == []


@pytest.mark.process
def test_neither_models_nor_a_server_are_loaded() -> None:
    loaded = (
        "import sys, throughline.client; print(*{'langchain', 'langchain_core', 'langgraph', 'openai', 'anthropic',"
        " 'tiktoken', 'fastapi'} & set(sys.modules))"
    )

    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == ""


async def test_the_runs_of_a_session_are_listed_the_last_first(client: Client) -> None:
    session = await client.new_session()
    runs = [(await client.submit(session.id, text)).id for text in ("one", "two", "three")]
    await client.cancel(runs[1])

    assert [run.id async for run in client.runs(session.id)] == runs[::-1]
    assert [run.id async for run in client.runs(str(session.id), status="cancelled")] == [runs[1]]
    with pytest.raises(InvalidInput, match=r"status is 'asleep'; it must be one of 'queued', "):
        [run async for run in client.runs(session.id, status="asleep")]
