"""Runs of LangGraph's interface, with its own Python client over a real socket."""

import asyncio
from itertools import pairwise

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, UnprocessableEntityError
from langgraph_sdk.schema import StreamMode

from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, said, texts
from fakes.scripted_model import Call, Fail, Hang, Say
from fakes.waiting import until, until_found
from throughline.domain.errors import ModelRejected
from throughline.domain.message import ToolCall

ADDS = ToolCall("call_1", "calculator", '{"expression": "17 * 23"}')
HELLO = [("human", "hello"), ("ai", "Hello back.")]


async def test_a_turn_is_streamed_as_values(stage: LangGraphStage) -> None:
    stage.model.script(Say("Hello back."))
    thread = await stage.open_thread()

    parts = [part async for part in stage.client.runs.stream(thread, AGENT_NAME, input=said("hello", id="m-1"))]

    assert [part.event for part in parts] == ["metadata", "values", "values", "end"]
    assert texts(parts[1].data) == HELLO[:1]
    assert parts[1].data["messages"][0]["id"] == "m-1"
    assert texts(parts[-2].data) == HELLO
    assert parts[-1].data["status"] == "success"


async def test_each_mode_shows_a_turn_with_a_tool(stage: LangGraphStage) -> None:
    modes: list[StreamMode] = ["updates", "messages-tuple", "custom"]
    stage.model.script(Call((ADDS,), is_streamed=True), Say("It is 391."))
    thread = await stage.open_thread()

    parts = [part async for part in stage.client.runs.stream(thread, AGENT_NAME, input=said("?"), stream_mode=modes)]

    updates = [part.data for part in parts if part.event == "updates"]
    assert [next(iter(update)) for update in updates] == ["llm_node", "tool_node", "llm_node"]
    call = updates[0]["llm_node"]["messages"][0]["tool_calls"][0]
    assert call == {"name": "calculator", "args": {"expression": "17 * 23"}, "id": "call_1", "type": "tool_call"}
    chunks = [part.data for part in parts if part.event == "messages"]
    pieces = [piece for chunk, _ in chunks for piece in chunk.get("tool_call_chunks", [])]
    assert "".join(piece["args"] for piece in pieces) == ADDS.arguments
    assert [piece["name"] for piece in pieces if piece["name"]] == ["calculator"]
    last = updates[-1]["llm_node"]["messages"][0]["id"]
    assert "".join(chunk["content"] for chunk, _ in chunks if chunk["id"] == last) == "It is 391."
    assert {metadata["langgraph_node"] for _, metadata in chunks} == {"llm_node", "tool_node"}


async def test_the_mode_messages_sends_what_a_message_is_so_far(stage: LangGraphStage) -> None:
    stage.model.script(Say("One two three."))
    thread = await stage.open_thread()

    parts = [
        part async for part in stage.client.runs.stream(thread, AGENT_NAME, input=said("?"), stream_mode="messages")
    ]

    partial = [part.data[0]["content"] for part in parts if part.event == "messages/partial"]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(partial))
    assert parts[1].event == "messages/metadata"
    assert [part.data[0]["content"] for part in parts if part.event == "messages/complete"] == ["One two three."]


async def test_a_run_is_waited_for(stage: LangGraphStage) -> None:
    stage.model.script(Say("Hello back."), Say("Again."))
    thread = await stage.open_thread()

    first = await stage.wait(thread, said("hello"))
    second = await stage.wait(thread, said("more"))

    assert texts(first) == HELLO
    assert texts(second) == [*HELLO, ("human", "more"), ("ai", "Again.")]


async def test_of_a_whole_history_only_what_is_new_is_taken(stage: LangGraphStage) -> None:
    stage.model.script(Say("Hello back."), Say("Again."), Say("And again."))
    thread = await stage.open_thread()
    known = await stage.wait(thread, said("hello", id="mine"))

    by_id = {"messages": [*known["messages"], {"type": "human", "content": "more", "id": "mine-2"}]}
    longer = await stage.wait(thread, by_id)
    without_ids = [{**message, "id": None} for message in longer["messages"]]
    longest = await stage.wait(thread, {"messages": [*without_ids, ["user", "last"]]})

    assert [text for _, text in texts(longest)] == ["hello", "Hello back.", "more", "Again.", "last", "And again."]


async def test_a_failed_run_is_an_error_for_the_client(stage: LangGraphStage) -> None:
    refused = Fail(ModelRejected("The provider refuses it."))
    stage.model.script(refused, refused)
    thread = await stage.open_thread()

    parts = [part async for part in stage.client.runs.stream(thread, AGENT_NAME, input=said("hello"))]
    with pytest.raises(Exception, match="model_rejected: The provider refuses it"):
        await stage.wait(thread, said("hello again"))

    assert (parts[-1].event, parts[-1].data["error"]) == ("error", "model_rejected")
    assert (await stage.client.threads.get(thread))["status"] == "error"
    assert (await stage.state(thread))["tasks"][0]["error"] == "The provider refuses it."


async def test_a_run_in_the_background_is_joined(stage: LangGraphStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Hello back.", gate=gate))
    thread = await stage.open_thread()

    run = await stage.client.runs.create(thread, AGENT_NAME, input=said("hello"), metadata={"topic": "greeting"})
    busy = await stage.client.threads.get(thread)
    gate.set()
    values = await stage.client.runs.join(thread, run["run_id"])
    ended = await stage.client.runs.get(thread, run["run_id"])
    streamed = [part async for part in stage.client.runs.join_stream(thread, run["run_id"], stream_mode="values")]
    listed = await stage.client.runs.list(thread, status="success")

    assert busy["status"] == "busy"
    assert texts(values) == HELLO
    assert (ended["status"], (ended["metadata"] or {})["topic"]) == ("success", "greeting")
    assert texts(streamed[-2].data) == HELLO
    assert [one["run_id"] for one in listed] == [run["run_id"]]


async def test_a_stream_goes_on_after_the_last_event(stage: LangGraphStage) -> None:
    stage.model.script(Say("One two three."))
    thread = await stage.open_thread()
    modes: list[StreamMode] = ["messages-tuple"]
    parts = [part async for part in stage.client.runs.stream(thread, AGENT_NAME, input=said("?"), stream_mode=modes)]
    run_id = (parts[0].data or {})["run_id"]

    rest = [
        part
        async for part in stage.client.runs.join_stream(thread, run_id, stream_mode=modes, last_event_id=parts[1].id)
    ]
    seen = await stage.http.get(
        f"/langgraph/threads/{thread}/runs/{run_id}/stream", headers={"Last-Event-ID": str(parts[-1].id)}
    )

    assert [part.data for part in rest[1:]] == [part.data for part in parts[2:]]
    assert seen.status_code == httpx.codes.NO_CONTENT


async def test_a_run_is_cancelled(stage: LangGraphStage) -> None:
    stage.model.script(Hang("Hello"), Say("Later."))
    thread = await stage.open_thread()
    run = await stage.client.runs.create(thread, AGENT_NAME, input=said("hello"))
    await until(lambda: len(stage.model.requests) == 1)

    await stage.client.runs.cancel(thread, run["run_id"], wait=True)

    assert (await stage.client.runs.get(thread, run["run_id"]))["status"] == "interrupted"
    with pytest.raises(UnprocessableEntityError, match="action"):
        await stage.client.runs.cancel(thread, run["run_id"], action="rollback")


async def test_a_busy_thread_refuses_or_interrupts(stage: LangGraphStage) -> None:
    stage.model.script(Hang("Hello"), Say("The second."))
    thread = await stage.open_thread()
    first = await stage.client.runs.create(thread, AGENT_NAME, input=said("hello"))
    await until(lambda: len(stage.model.requests) == 1)

    with pytest.raises(ConflictError):
        await stage.client.runs.create(thread, AGENT_NAME, input=said("no"), multitask_strategy="reject")
    second = await stage.wait(thread, said("now"), multitask_strategy="interrupt")

    assert texts(second)[-1] == ("ai", "The second.")
    assert (await stage.client.runs.get(thread, first["run_id"]))["status"] == "interrupted"


async def test_a_run_ends_with_its_stream_if_the_client_says_so(stage: LangGraphStage) -> None:
    stage.model.script(Hang("Hello"))
    thread = await stage.open_thread()

    stream = stage.client.runs.stream(thread, AGENT_NAME, input=said("hello"), on_disconnect="cancel")
    async for part in stream:
        if part.event == "values":
            break
    await stream.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator

    async def is_cancelled() -> bool:
        return (await stage.client.runs.list(thread))[0]["status"] == "interrupted"

    await until_found(is_cancelled)

    assert await is_cancelled()


async def test_nothing_is_kept_of_a_run_without_a_thread(stage: LangGraphStage) -> None:
    stage.model.script(Say("Hello back."), Say("Hello back."), Say("One."), Say("Two."))

    parts = [part async for part in stage.client.runs.stream(None, AGENT_NAME, input=said("hello"))]
    values = await stage.wait(None, said("hello"))
    batch = await stage.client.runs.create_batch(
        [{"assistant_id": AGENT_NAME, "input": said(text)} for text in ("a", "b")]  # type: ignore[typeddict-item]  # it lists all fields
    )
    joined = [await stage.client.runs.join(run["thread_id"], run["run_id"]) for run in batch]

    assert texts(parts[-2].data) == texts(values) == HELLO
    assert {texts(one)[-1][1] for one in joined} == {"One.", "Two."}
    assert await stage.client.threads.search() == []


async def test_a_thread_is_created_with_its_first_run_on_demand(stage: LangGraphStage) -> None:
    stage.model.script(Say("Hello back."), Say("Again."))
    thread = "0198c1f0-0000-4000-8000-000000000001"

    with pytest.raises(httpx.HTTPStatusError, match="404"):
        await stage.wait(thread, said("hello"))
    await stage.wait(thread, said("hello"), if_not_exists="create")
    config = {"configurable": {"thread_id": thread}}
    values = await stage.wait(None, said("more"), config=config)

    assert texts(values)[0] == ("human", "hello")
    assert (await stage.client.threads.get(thread))["thread_id"] == thread


async def test_several_new_messages_are_answered_as_one(stage: LangGraphStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    thread = await stage.open_thread()
    await stage.wait(thread, said("yes"))
    new = [{"type": "human", "content": text, "id": text} for text in ("yes", "go")]

    values = await stage.wait(thread, {"messages": new})

    assert [message["content"] for message in values["messages"]] == ["yes", "one", "yes\ngo", "two"]


async def test_a_message_that_is_sent_again_gets_its_answer(stage: LangGraphStage) -> None:
    stage.model.script(Say("one"))
    thread = await stage.open_thread()
    given = {"messages": [{"type": "human", "content": "a", "id": "h1"}]}
    await stage.wait(thread, given)

    values = await stage.wait(thread, given)

    assert [message["content"] for message in values["messages"]] == ["a", "one"]


async def test_several_runs_take_no_idempotency_key_and_begin_together_or_not_at_all(stage: LangGraphStage) -> None:
    bodies = [{"assistant_id": name, "input": said("a")} for name in ("assistant", "nobody")]
    keyed = await stage.http.post("/langgraph/runs/batch", json=bodies[:1], headers={"Idempotency-Key": "k"})
    unknown = await stage.post("/runs/batch", bodies)

    assert (keyed.status_code, unknown.status_code, stage.model.requests) == (422, 404, [])
