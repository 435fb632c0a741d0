"""What a program may get wrong: values of another kind, and a client that is used where it was not made."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from fakes.pooler import urls_of
from fakes.scripted_model import Call, Say
from fakes.scripted_turns import ASKS_WEATHER, CAREFUL, DELETES, results
from fakes.side_jobs import side_jobs
from fakes.stage import OneTool, Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.client import (
    Client,
    DatabaseUnusable,
    InvalidInput,
    NotAnswered,
    NotFound,
    Resolution,
    RunNotWaiting,
    RunStatus,
    RunWaiting,
    TemporaryError,
    WaitKind,
    answer,
    approve,
    connect,
    edit,
    reject,
    result,
)
from throughline.client.summarize import count_tokens, get_context_limit
from throughline.db.database import Database
from throughline.turn.worker.worker import Worker, WorkerConfig

SESSION = "00000000-0000-7000-8000-000000000000"
NOTHING: Any = None  # Any: where text is asked for


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[Client]:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna", pool_size=1) as opened:
        yield opened


async def resolving(make: Callable[..., Resolution], *given: object) -> Resolution:
    return make(*given)


Asked = Callable[[Client, Any], Any]  # Any: the values are of the wrong kinds on purpose


@pytest.mark.parametrize("given", [b"hi", 7, ["hi"]])
@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("text", lambda client, given: client.submit(SESSION, given)),
        ("idempotency_key", lambda client, given: client.submit(SESSION, "hi", idempotency_key=given)),
        ("agent", lambda client, given: client.new_session(given)),
        ("title", lambda client, given: client.new_session(title=given)),
        ("idempotency_key", lambda client, given: client.new_session(idempotency_key=given)),
        ("external_id", lambda client, given: client.get_or_create_session(given)),
        ("agent", lambda client, given: anext(client.sessions(agent=given))),
        ("title", lambda client, given: anext(client.sessions(title=given))),
        ("user", lambda client, given: client.acting_as(given)),
        ("call_id", lambda _client, given: resolving(approve, given)),
        ("reason", lambda _client, given: resolving(reject, "call_1", given)),
        ("text", lambda _client, given: resolving(answer, "call_1", given)),
    ],
    ids=[
        "text",
        "key of a message",
        "agent",
        "title",
        "key of a session",
        "external id",
        "agent sought",
        "title sought",
        "user",
        "approval",
        "reason",
        "answer",
    ],
)
async def test_what_is_no_text_is_refused_by_name_and_kind(client: Client, field: str, ask: Asked, given: Any) -> None:  # noqa: ANN401  # of any kind
    with pytest.raises(InvalidInput, match=rf"^{field} is .*{type(given).__name__}.*; it must be a str") as refused:
        await ask(client, given)

    assert refused.value.field == field


@pytest.mark.parametrize("given", ["", " \u200b", "x" * 256])
async def test_an_external_id_that_is_blank_or_too_long_is_refused(client: Client, given: str) -> None:
    with pytest.raises(InvalidInput, match=r"must have 1 to 255 characters and not be blank") as refused:
        await client.get_or_create_session(given)

    assert refused.value.field == "external_id"


async def test_nothing_at_all_is_no_text_either(client: Client) -> None:
    for reach in (client.submit(SESSION, NOTHING), client.new_session(NOTHING), client.acting_as(NOTHING)):
        with pytest.raises(InvalidInput, match=r"is None \(NoneType\); it must be a str"):
            await reach


async def test_no_key_and_no_filter_may_be_said_with_none(client: Client) -> None:
    made = await client.new_session(idempotency_key=NOTHING)

    assert (await client.submit(made.id, "hi", idempotency_key=NOTHING)).session_id == made.id
    assert [one.id async for one in client.sessions(agent=NOTHING, title=NOTHING)] == [made.id]


@pytest.mark.parametrize("given", ["1", None, -1, 2**63, 1.5])
async def test_what_is_no_count_is_refused_by_name(client: Client, given: Any) -> None:  # noqa: ANN401  # of any kind
    for read in (client.history(SESSION, after=given), client.events(SESSION, after=given)):
        with pytest.raises(InvalidInput, match=r"^after is .*; it must be a whole number from 0") as refused:
            await anext(read)
        assert refused.value.field == "after"


@pytest.mark.parametrize("given", ["text", [("a", 1)], 7])
async def test_metadata_that_is_no_dictionary_is_refused(client: Client, given: Any) -> None:  # noqa: ANN401  # of any kind
    with pytest.raises(InvalidInput, match="metadata must be a dict"):
        await client.new_session(metadata=given)


@pytest.mark.parametrize("name", ["", " ", "\u200b", "a\x00b", "a\ud800", "x" * 201])
async def test_a_name_that_nobody_could_read_or_that_cannot_be_kept_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidInput, match="name") as refused:
        await client.acting_as(name)

    assert refused.value.field == "user"


async def test_a_client_in_another_loop_says_so_and_goes_on_in_its_own(client: Client) -> None:
    session = await client.new_session()
    run = await client.submit(session.id, "hi")

    async def elsewhere() -> None:
        for reach in (client.new_session(), client.submit(session.id, "hi"), client.wait(run.id)):
            with pytest.raises(DatabaseUnusable, match=r"another event loop.*`connect`") as told:
                await reach
            assert not isinstance(told.value, TemporaryError)
        for read in (client.events(run.id), client.history(session.id), client.sessions()):
            with pytest.raises(DatabaseUnusable, match="another event loop"):
                await anext(read)

    await asyncio.to_thread(asyncio.run, elsewhere())

    assert (await client.get_run(run.id)).id == run.id


@pytest.mark.parametrize(
    "arguments", [NOTHING, "text", {"a": {1}}, {"a": float("nan")}, {"a": "\x00"}, {"a": "\ud800"}]
)
def test_edited_arguments_must_be_an_object_that_can_be_stored(arguments: Any) -> None:  # noqa: ANN401  # of any kind
    with pytest.raises(InvalidInput, match="arguments"):
        edit("call_1", arguments)


def test_a_reason_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="4001 characters"):
        reject("call_1", "x" * 4_001)


@pytest.mark.parametrize(
    "tools", [NOTHING, "weather", [{"name": "a b"}], [{"name": "a"}] * 2, [{"name": "a", "x": 1}], [{"name": "\x00"}]]
)
async def test_wrong_tools_are_refused(client: Client, tools: Any) -> None:  # noqa: ANN401  # of any kind
    with pytest.raises(InvalidInput, match="tools"):
        await client.submit(SESSION, "hi", tools=tools)


WEATHER = [{"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}]


def worker_of(stage: Stage) -> Worker:
    config = WorkerConfig(name="elsewhere", lease_seconds=3)
    return Worker(stage.dependencies, stage.database.notifier.work, side_jobs(stage), config)


async def test_a_program_gives_the_result_of_its_own_tool(database: Database, database_url: str) -> None:
    stage, urls = await open_stage(database), urls_of(database_url)
    other = replace(ASKS_WEATHER, id="call_9")
    stage.model.script(Call((ASKS_WEATHER, other), text="I look."), Say("It rains in Graz."))
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "rain?", tools=WEATHER)
        async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
            waiting = await client.wait(run.id)
            seen = [event async for event in client.events(run.id)]
            still = await client.resume(run.id, result("call_1", "rain"))
            goes_on = await client.resume(run.id, result("call_9", "no weather there", is_error=True))
            rest = [event.type.value async for event in client.events(run.id, after=seen[-1].seq)]
            ended = await client.wait(run.id)
        stored = [message async for message in client.history(session.id)]

    assert waiting.run.waiting_for is not None
    assert [(call.id, call.kind) for call in waiting.run.waiting_for.calls] == [
        ("call_1", WaitKind.TOOL_RESULT),
        ("call_9", WaitKind.TOOL_RESULT),
    ]
    with pytest.raises(NotAnswered, match=r"waits for: tool_result of weather \(call_1\)"):
        waiting.answer()
    assert isinstance(seen[-1].event, RunWaiting)
    assert (still.status, goes_on.status) == (RunStatus.WAITING, RunStatus.QUEUED)
    assert (rest[0], rest[-1]) == ("run.started", "run.completed")
    assert ended.answer() == "It rains in Graz."
    assert set(results(stored)) == {("call_1", "rain"), ("call_9", "no weather there")}
    assert stored[2].metadata["given_by"] == "anna"


async def test_what_was_given_first_counts(database: Database, database_url: str) -> None:
    tool, urls = OneTool("delete", "deleted", repeatable=False), urls_of(database_url)
    stage = await open_stage(database, agent=CAREFUL, tools=tool)
    stage.model.script(Call((DELETES,)), Say("Done."))
    async with connect(urls["url"], direct_url=urls["direct_url"], user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "delete it")
        async with worker_of(stage).working(), asyncio.timeout(HANG_SECONDS):
            await client.wait(run.id)
            with pytest.raises(InvalidInput, match="waits for: approval"):
                await client.resume(run.id, result("call_2", "deleted"))
            with pytest.raises(InvalidInput, match="Nothing is given"):
                await client.resume(run.id)
            with pytest.raises(NotFound):
                await (await client.acting_as("berta")).resume(run.id, approve("call_2"))
            await client.resume(run.id, edit("call_2", {"file": "b.txt"}))
            with pytest.raises(RunNotWaiting):
                await client.resume(run.id, reject("call_2", "Keep it."))
            ended = await client.wait(run.id)

    assert (ended.answer(), len(tool.keys)) == ("Done.", 1)


TEXT = "We ship on 14 May. 我们五月十四日发货"


@pytest.mark.parametrize(
    ("model", "tokens", "window"),
    [
        ("openai:gpt-4o", 14, 128_000),
        ("azure_openai:gpt-5-mini", 14, 272_000),
        ("openrouter:openai/gpt-oss-20b", 14, 131_072),
        ("openai:gpt-4", 17, 8192),
        ("openai:ft:gpt-4o-2024-08-06:acme::id", 14, 128_000),
        ("somewhere:else", 17, 8192),
    ],
)
def test_a_model_has_its_own_count_and_window(model: str, tokens: int, window: int) -> None:
    assert count_tokens(TEXT, model) == tokens
    assert get_context_limit(model) == window


def test_no_model_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_LLM", "openai:gpt-4o")

    assert (count_tokens(TEXT), get_context_limit()) == (14, 128_000)


def test_a_special_token_is_counted_as_plain_text() -> None:
    assert count_tokens("<|endoftext|>", "openai:gpt-4o") > 1
