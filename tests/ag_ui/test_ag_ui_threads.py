"""AG-UI threads: what a request adds to its session, what it continues, and what the client is shown again."""

import asyncio
from dataclasses import replace
from functools import partial

import httpx
import pytest

from fakes.ag_ui_client import AgUiThread, Json, outcome, read_events
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import OneTool
from fakes.waiting import until_found
from throughline.ag_ui.front_end import AG_UI
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage

WEATHER: Json = {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}


async def named(stage: OpenAIStage, thread_id: str = "thread-1") -> list[Json]:
    """Return the sessions of the thread, one or none."""
    listed = await stage.http.get("/v1/sessions", params={"external_id": thread_id})
    return list(listed.json()["data"])


async def stored(stage: OpenAIStage, thread_id: str = "thread-1") -> list[object]:
    """Return the contents of all messages of the thread's session."""
    (session,) = await named(stage, thread_id)
    messages = await stage.http.get(f"/v1/sessions/{session['id']}/messages", params={"limit": 200})
    return [message["content"] for message in messages.json()["data"]]


async def test_a_thread_is_one_session_and_only_what_is_new_is_stored(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two", usage=Usage(10, 3)))
    thread = AgUiThread(stage.http)

    first = await thread.say("a")
    last = await thread.say("b")

    assert await stored(stage) == thread.texts() == ["a", "one", "b", "two"]
    assert (outcome(first), last[-1]["usage"]) == (
        {"type": "success"},
        [{"inputTokens": 10, "outputTokens": 3, "totalTokens": 13}],
    )
    assert "MESSAGES_SNAPSHOT" not in [event["type"] for event in [*first, *last]]


async def test_reasoning_comes_before_its_text(stage: OpenAIStage) -> None:
    stage.model.script(Say("so", thinks="hm"))

    events = await AgUiThread(stage.http).say("a")

    assert [event["type"] for event in events if event["type"].startswith(("REASONING", "TEXT"))] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]


async def test_the_context_stands_in_the_state_beside_what_the_client_keeps_there(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))

    events = await AgUiThread(stage.http).say("a", state={"mine": 1})

    (shown,) = (event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT")
    (change,) = (event["delta"][0] for event in events if event["type"] == "STATE_DELTA")
    assert (shown["mine"], shown["throughline"]["context"]) == (1, None)
    assert (change["path"], "usage_percent" in change["value"]) == ("/throughline/context", True)


async def test_a_run_that_is_sent_again_is_shown_again_and_not_begun_again(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    thread = AgUiThread(stage.http)
    await thread.say("a")

    thread.messages[-1]["content"] = "on"  # as a client has it whose stream was cut
    again = await thread.run("run-2")

    assert await stored(stage) == thread.texts() == ["a", "one"]
    assert [event["type"] for event in again][:3] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]


async def test_a_run_of_before_the_newest_is_shown_where_it_stands(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    thread = AgUiThread(stage.http)
    await thread.say("a", run_id="r")
    sent = [*thread.messages]
    await thread.say("b")
    whole = thread.texts()

    thread.messages = sent
    again = await thread.run("r")

    assert thread.texts() == whole
    assert "TEXT_MESSAGE_START" not in [event["type"] for event in again]


async def test_the_calls_of_a_run_of_before_the_newest_are_shown_once(database: Database) -> None:
    agent = replace(OPEN_AGENT, tools=("look",))
    async with open_openai_stage(
        database, agent=agent, tools=OneTool("look", "seen", repeatable=True), front_ends=(AG_UI,)
    ) as stage:
        stage.model.script(Call((ToolCall("call_1", "look", "{}"),)), Say("one"), Say("two"))
        thread = AgUiThread(stage.http)
        await thread.say("a", run_id="r")
        sent = thread.messages[:1]
        await thread.say("b")
        whole = thread.texts()

        thread.messages = sent
        await thread.run("r")

    assert thread.texts() == whole == ["a", ["look"], "seen", "one", "b", "two"]


async def test_a_message_is_asked_again_after_a_failure_and_not_said_twice(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("No.")), Say("one"), Say("two"))
    thread = AgUiThread(stage.http)
    await thread.say("a")

    await thread.run()
    await thread.say("b")

    assert await stored(stage) == thread.texts() == ["a", "one", "b", "two"]


async def test_a_run_id_of_another_message_is_refused(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    thread = AgUiThread(stage.http)
    await thread.say("a", run_id="r")

    thread.messages.append({"id": "m-9", "role": "user", "content": "b"})
    refused = await thread.post("r")

    assert (refused.status_code, await stored(stage)) == (httpx.codes.CONFLICT, ["a", "one"])


async def test_a_client_without_messages_is_shown_the_thread(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    thread = AgUiThread(stage.http)
    await thread.say("a")

    reloaded = AgUiThread(stage.http)
    events = await reloaded.run("reload")

    assert [event["type"] for event in events] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert [message["id"] for message in reloaded.messages] == [message["id"] for message in thread.messages]


async def test_an_unknown_thread_without_messages_is_empty_and_not_stored(stage: OpenAIStage) -> None:
    events = await AgUiThread(stage.http).run()

    assert [event["type"] for event in events] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert (await stage.http.get("/v1/sessions")).json()["data"] == []


async def test_a_client_that_reloads_while_the_agent_answers_follows_the_answer(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one two", gate=gate))
    thread, reloaded = AgUiThread(stage.http), AgUiThread(stage.http)
    first = asyncio.create_task(thread.say("a"))
    await until_found(partial(named, stage))
    second = asyncio.create_task(reloaded.run("reload"))
    gate.set()

    await asyncio.gather(first, second)

    assert reloaded.texts() == thread.texts() == ["a", "one two"]


async def test_messages_of_other_interfaces_are_shown_before_the_new_one(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"))
    thread = AgUiThread(stage.http)
    await thread.say("a")
    (session,) = await named(stage)
    await stage.http.post(f"/v1/sessions/{session['id']}/messages", json={"content": "elsewhere"})

    events = await thread.say("b")

    assert "MESSAGES_SNAPSHOT" in [event["type"] for event in events]
    assert await stored(stage) == thread.texts() == ["a", "one", "elsewhere", "two", "b", "three"]


async def test_an_edited_message_begins_a_branch_that_takes_the_thread_over(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"), Say("four"))
    thread = AgUiThread(stage.http)
    await thread.say("a")
    await thread.say("b")

    thread.messages[2:] = []
    await thread.say("c")
    await thread.say("d")

    assert await stored(stage) == thread.texts() == ["a", "one", "c", "three", "d", "four"]


async def test_a_thread_may_be_named_by_the_id_of_its_session(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    session = (await stage.http.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]

    await AgUiThread(stage.http, thread_id=session).say("a")

    messages = (await stage.http.get(f"/v1/sessions/{session}/messages")).json()["data"]
    assert [message["content"] for message in messages] == ["a", "one"]


async def test_a_failed_run_is_an_error_and_the_message_is_kept(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The model says no."), shown="Well"))
    thread = AgUiThread(stage.http)

    events = await thread.say("a")

    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "model_rejected")
    assert await stored(stage) == ["a"]


async def test_text_of_a_broken_try_is_taken_back(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelUnavailable("down", delay_seconds=0.01), shown="Wrong words"), Say("right"))
    thread = AgUiThread(stage.http)

    await thread.say("a")

    assert await stored(stage) == thread.texts() == ["a", "right"]


EARLY: Json = {"protocolVersion": None}
"""Members of a request of a client from before version 1.0."""


@pytest.mark.parametrize(("version", "expected"), [({"protocolVersion": "1.0"}, {"type": "cancelled"}), (EARLY, None)])
async def test_a_cancelled_run_says_so(stage: OpenAIStage, version: Json, expected: object) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one two", gate=gate))
    async with stage.http.stream(
        "POST",
        "/ag-ui/assistant",
        json={**version, "threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "a"}]},
    ) as response:
        await stage.http.post(f"/v1/runs/{response.headers['x-run-id']}/cancel")
        events = read_events(await response.aread())

    assert events[-1].get("outcome") == expected


async def test_a_run_ends_with_its_client_if_the_address_says_so(stage: OpenAIStage) -> None:
    stage.model.script(Say("one two", gate=asyncio.Event()))
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "a"}]}
    async with stage.http.stream("POST", "/ag-ui/assistant?on_disconnect=cancel", json=body) as response:
        run = response.headers["x-run-id"]

    while (found := (await stage.http.get(f"/v1/runs/{run}")).json())["status"] not in {"cancelled", "succeeded"}:
        await asyncio.sleep(0.05)
    assert found["status"] == "cancelled"


async def test_a_page_that_only_looks_on_cancels_nothing(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one two", gate=gate))
    first = asyncio.create_task(AgUiThread(stage.http).say("a"))
    await until_found(partial(named, stage))
    body = {"threadId": "thread-1", "runId": "look", "messages": []}
    async with stage.http.stream("POST", "/ag-ui/assistant?on_disconnect=cancel", json=body) as response:
        await anext(response.aiter_bytes())
    gate.set()

    assert outcome(await first) == {"type": "success"}


async def test_the_newest_message_alone_asked_again_keeps_what_was_before_it(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("again"))
    thread = AgUiThread(stage.http)
    await thread.say("a")
    await thread.say("b")

    thread.messages = [message for message in thread.messages if message.get("content") == "b"]
    await thread.run()

    assert await stored(stage) == ["a", "one", "b", "again"]


async def test_an_equal_text_under_another_id_is_another_message(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one 1", gate=gate), Say("two"))
    first = asyncio.create_task(AgUiThread(stage.http).say("yes", run_id="r1"))
    await until_found(partial(named, stage))
    other = AgUiThread(stage.http, messages=[{"id": "other", "role": "user", "content": "yes"}])
    second = asyncio.create_task(other.run("r2"))
    await until_found(partial(queued, stage, 2))
    gate.set()
    await asyncio.gather(first, second)

    assert await stored(stage) == ["yes", "one 1", "yes", "two"]


async def queued(stage: OpenAIStage, count: int) -> bool:
    (session,) = await named(stage)
    return len((await stage.http.get(f"/v1/sessions/{session['id']}/runs")).json()["data"]) >= count


BAD: list[tuple[Json, str]] = [
    ({"threadId": ""}, "threadId"),
    ({"runId": ""}, "runId"),
    ({"messages": "x"}, "messages"),
    ({"messages": [{"role": "user", "content": "a"}]}, "messages.0.id"),
    ({"messages": [{"id": "1", "role": "nobody", "content": "a"}]}, "messages.0.role"),
    ({"messages": [{"id": "1", "role": "user", "content": " "}]}, "messages"),
    ({"messages": [{"id": "1", "role": "user", "content": [{"type": "audio"}]}]}, "messages.0.content.0"),
    (
        {
            "messages": [
                {"id": "1", "role": "user", "content": [{"type": "image", "source": {"type": "url", "value": "x"}}]}
            ]
        },
        "messages.0.content.0.source",
    ),
    ({"messages": [{"id": "1", "role": "tool", "content": "x"}]}, "messages.0.toolCallId"),
    ({"tools": [{"name": "not a name", "description": ""}]}, "tools.0.name"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"resume": [{"interruptId": "x", "status": "maybe"}]}, "resume.0.status"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD)
async def test_a_bad_request_names_its_field_and_stores_nothing(stage: OpenAIStage, wrong: Json, field: str) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "a"}], **wrong}

    refused = await stage.http.post("/ag-ui/assistant", json=body)

    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY, refused.text
    assert refused.json()["errors"][0]["field"] == field
    assert (await stage.http.get("/v1/sessions")).json()["data"] == []


async def test_an_unknown_agent_is_not_found(stage: OpenAIStage) -> None:
    refused = await stage.http.post(
        "/ag-ui/nobody", json={"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "a"}]}
    )

    assert (refused.status_code, "assistant" in refused.json()["detail"]) == (httpx.codes.NOT_FOUND, True)
