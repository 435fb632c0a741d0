"""The way in for other programs: submit, follow, await and stop runs, over the database alone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.pooler import urls_of
from fakes.programs import ROOT
from fakes.provider_double import SUMMARISER, ProviderDouble, ScriptStep, Verdict
from fakes.raw_sql import run_sql
from fakes.scripted_model import Fail, Hang, Say
from fakes.service_process import RunScript
from fakes.side_jobs import side_jobs
from fakes.stage import AGENT, Stage, open_stage
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
from throughline.client.summarize import summarize_messages
from throughline.db.database import Database
from throughline.domain.errors import (
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    ModelRefused,
    NotFound,
    NoWorkerAvailable,
    SessionBusy,
    SettingInvalid,
)
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.prompt import OverrideField, Overrides, ResponseFormat
from throughline.llm.counters import make_counter
from throughline.turn.take_turn import take_turn
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


SCHEMA = {"type": "object"}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "thing"}}
NESTED: object = json.loads('{"items":' * 200 + "{}" + "}" * 200)


def schema_of(schema: object) -> object:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


@pytest.fixture
async def stage_overriding(database: Database) -> Stage:
    return await open_stage(database, agent=replace(AGENT, overrides=frozenset(OverrideField)))


@pytest.fixture
async def client_overriding(database_url: str) -> AsyncIterator[Client]:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna", pool_size=4) as opened:
        yield opened


async def test_overrides_reach_the_worker(stage_overriding: Stage, client_overriding: Client) -> None:
    stage_overriding.model.script(Say("no"), Say("neither"))
    session = await client_overriding.new_session()

    run = await client_overriding.submit(
        session.id, "hi", overrides={"instructions": "Be brief.", "response_format": FORMAT}
    )
    await take_turn(stage_overriding.turn_start(await stage_overriding.claim()))
    ended = await client_overriding.wait(run.id)

    assert run.input.overrides == Overrides(
        instructions="Be brief.", response_format=ResponseFormat({"type": "object"}, "thing")
    )
    assert "Be brief." in stage_overriding.model.requests[0].prompt.system
    assert ended.run.error is not None
    assert (ended.run.error.type, ended.text) == ("answer_not_in_format", "neither")


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"tools": []}, "overrides.tools"),
        ({"temperature": 3}, "overrides.temperature"),
        ({"temperature": {1, 2}}, "overrides.temperature"),
        ({"instructions": " "}, "overrides.instructions"),
        ({"instructions": "a\x00b"}, "overrides"),
        ({"instructions": "a\ud800b"}, "overrides"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/no"}}}}, "overrides."),
        (schema_of(NESTED), "overrides.response_format"),
        (schema_of({"maximum": float("inf")}), "overrides.response_format"),
        (schema_of({"default": float("nan")}), "overrides.response_format"),
        (["model"], "overrides"),
    ],
)
async def test_wrong_overrides_are_refused_with_their_field(
    client_overriding: Client, overrides: object, field: str
) -> None:
    session = await client_overriding.new_session()

    with pytest.raises(InvalidInput) as refused:
        await client_overriding.submit(session.id, "hi", overrides=overrides)  # type: ignore[arg-type]  # that is the test

    assert refused.value.field.startswith(field)


async def test_a_key_with_other_overrides_is_another_request(client_overriding: Client) -> None:
    session = await client_overriding.new_session()

    async def submit(**overrides: object) -> object:
        return (await client_overriding.submit(session.id, "hi", idempotency_key="k", overrides=overrides)).id

    first = await submit(temperature=0, instructions="Be brief.")

    assert await submit(instructions="Be brief.", temperature=0) == first
    with pytest.raises(IdempotencyKeyReused):
        await submit(temperature=1)


EXAMPLE = ROOT / "docs" / "examples" / "summarize_a_transcript.py"
COUNT = make_counter("tiktoken").count
TALK: list[dict[str, object]] = [
    {"role": "system", "content": "You answer."},
    {"role": "user", "content": "Anna lives at 12 Quay Street."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "map"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "The street is closed until 3 May."},
]


async def test_messages_in_openais_format_are_summarised_and_cited_from_1_on() -> None:
    text = await summarize_messages(TALK)

    assert "12 Quay Street. [#1]" in text
    assert "You answer" not in text


async def test_our_own_messages_are_read_as_they_are() -> None:
    said = NewMessage(role=Role.USER, content="Anna lives at 12 Quay Street.", source=Source.API)

    assert "12 Quay Street. [#1]" in await summarize_messages([said])


async def test_no_earlier_summary_may_be_said_as_none() -> None:
    assert await summarize_messages(TALK, None) == await summarize_messages(TALK)


async def test_an_existing_summary_is_part_of_the_new_one() -> None:
    text = await summarize_messages(TALK, "Boris owns 7 ships.")

    assert "7 ships" in text
    assert "12 Quay Street" in text


@pytest.mark.slow
async def test_more_than_the_models_window_holds_is_summarised_to_the_size_that_is_wished() -> None:
    said = [
        {"role": "user", "content": f"Ship {number} carries {number * 7} barrels. " + "It rained again. " * 40}
        for number in range(1, 1201)
    ]
    assert sum(COUNT(item["content"]) for item in said) > 200_000

    text = await summarize_messages(said, max_tokens=600)

    assert 0 < COUNT(text) <= 600


async def test_a_model_of_the_settings_is_asked_at_its_own_server_within_its_window(
    provider_double: ProviderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DEFAULT_LLM": "openai:double-128k-cl100k",
        "DEFAULT_LLM_BASE_URL": provider_double.url,
        "OPENAI_API_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    provider_double.script(ScriptStep(text='{"error": "overloaded"}'), line=SUMMARISER, then_default=True)
    said = [{"role": "user", "content": f"Ship {number} is late. " + "It rained. " * 60} for number in range(1, 201)]

    text = await summarize_messages(said, model="openai:double-16k-cl100k", instructions="Keep the ships.")

    asked = provider_double.requests
    assert "Ship" in text
    assert {(record.verdict, record.model, record.line) for record in asked} == {
        (Verdict.ANSWERED, "double-16k-cl100k", SUMMARISER)
    }
    assert [position for record in asked[1:] for position in record.positions] == list(range(1, 201))
    assert all("Keep the ships." in str(record.prompt) for record in asked)


@pytest.mark.parametrize(
    ("messages", "options", "complaint"),
    [
        ([{"role": "robot", "content": "x"}], {}, r"messages\.0\.role"),
        ([{"role": "tool", "content": "x"}], {}, "tool_call_id"),
        ([{"content": "x"}], {}, r"messages\.0\.role"),
        ([*TALK, NewMessage(role=Role.USER, content="x", source=Source.API)], {}, "two kinds"),
        ([TALK[1]] * 10_001, {}, "at most 10000"),
        (TALK, {"max_tokens": 3}, "50 to 100000"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_place(
    messages: Sequence[Any], options: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        await summarize_messages(messages, **options)


async def test_a_model_without_its_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(SettingInvalid, match="OPENAI_API_KEY"):
        await summarize_messages(TALK, model="openai:gpt-4o-mini")


@pytest.mark.slow
async def test_the_example_runs_without_a_service_a_database_or_a_key(tmp_path: Path, run_alone: RunScript) -> None:
    code, told, complained = await run_alone(tmp_path, {}, EXAMPLE)

    monday, _, both = told.partition("Monday and Tuesday:")
    assert code == 0, complained
    assert "14 May" in monday
    assert "21 May" in both
