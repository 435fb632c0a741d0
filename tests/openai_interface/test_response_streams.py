"""Streamed responses through OpenAI's own client: their events, resuming, and what a reset or a failure shows."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from fakes.api_stage import LOCAL
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import OneTool
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
ASKS_WEATHER = ToolCall("call_1", "weather", "{}")


async def stream(stage: OpenAIStage, **body: Any) -> list[ResponseStreamEvent]:  # noqa: ANN401  # as the client's overloads take them
    return [event async for event in await stage.client.responses.create(model="assistant", stream=True, **body)]


def ended(events: list[ResponseStreamEvent]) -> Response:
    assert events[-1].type in {"response.completed", "response.failed", "response.incomplete"}
    return events[-1].response


def types(events: list[ResponseStreamEvent]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


async def test_a_text_is_streamed_with_all_its_events(stage: OpenAIStage) -> None:
    stage.model.script(Say("one two"))

    events = await stream(stage, input="hi")

    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = types(events)
    deltas = names.count("output_text.delta")
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two"
    ids = {event.item_id for event in events if event.type == "response.output_text.delta"}
    assert ids == {item.id for item in ended(events).output}
    assert ended(events) == await stage.client.responses.retrieve(ended(events).id)


async def followed(stage: OpenAIStage, gate: asyncio.Event) -> tuple[Response, list[tuple[str, int]]]:
    """Return the response that the client's helper has read, and its events; the gate opens at the third repetition."""
    seen: list[tuple[str, int]] = []
    async with stage.client.responses.stream(model="assistant", input="hi") as streamed:
        async for event in streamed:
            seen.append((event.type, event.sequence_number))
            if [name for name, _ in seen].count("response.in_progress") == 3:
                gate.set()
        return await streamed.get_final_response(), seen


async def test_a_stream_without_news_has_events_that_a_resumed_one_does_not_count(database: Database) -> None:
    gate = asyncio.Event()
    async with open_openai_stage(database, config=replace(LOCAL, heartbeat_seconds=0.05)) as stage:
        stage.model.script(Say("one two", gate=gate))
        final, seen = await followed(stage, gate)
        numbers = [number for name, number in seen if name != "response.in_progress"]
        resumed = [event async for event in await stage.client.responses.retrieve(final.id, stream=True)]

    assert final.output_text == "one two"
    assert numbers == [0, *range(2, len(numbers) + 1)]
    assert [event.sequence_number for event in resumed] == list(range(len(numbers) + 1))


async def test_the_clients_helper_follows_text_and_tools(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,), text="I look."), Say("It rains."))
    async with stage.client.responses.stream(model="assistant", input="Rain?", tools=[WEATHER]) as streamed:  # type: ignore[list-item]  # a dict
        names = [event.type async for event in streamed]
        asked = await streamed.get_final_response()
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    answered = await stream(stage, input=output, previous_response_id=asked.id)

    assert asked.output_text == "I look."
    for name in ("output_item.added", "function_call_arguments.delta", "function_call_arguments.done"):
        assert f"response.{name}" in names
    assert [item.type for item in asked.output] == ["message", "function_call"]
    assert ended(answered).output_text == "It rains."
    assert "function_call_arguments.done" not in types(answered)


async def test_deltas_come_after_their_item_and_part(stage: OpenAIStage) -> None:
    own = ToolCall("own_1", "calculator", '{"expression": "6*7"}')
    stage.model.script(
        Call((own,), text="I count.", thinks="Hm."),
        Call((ASKS_WEATHER,), text="I look.", thinks="So.", is_streamed=True),
    )
    async with stage.client.responses.stream(model="assistant", input="Rain?", tools=[WEATHER]) as streamed:  # type: ignore[list-item]  # a dict
        events: list[dict[str, Any]] = [event.model_dump(warnings=False) async for event in streamed]
        final = await streamed.get_final_response()

    items: set[str] = set()
    parts: set[tuple[str, int]] = set()
    for event in events:
        if event["type"] == "response.output_item.added":
            items.add(event["item"]["id"])
        elif event["type"] == "response.content_part.added":
            parts.add((event["item_id"], event["content_index"]))
        elif "item_id" in event:
            assert event["item_id"] in items
            assert "content_index" not in event or (event["item_id"], event["content_index"]) in parts
    assert [item.type for item in final.output] == ["message", "mcp_call", "message", "function_call"]
    assert (
        {item_id for item_id, _ in parts}
        <= items
        == {item["id"] for item in final.model_dump(warnings=False)["output"]}
    )


async def test_a_stream_is_resumed_after_any_of_its_events(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains in all of Graz."))
    asked = ended(await stream(stage, input="Rain?", tools=[WEATHER]))
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    events = await stream(stage, input=output, previous_response_id=asked.id)

    for last_seen in range(len(events)):
        resumed = await stage.client.responses.retrieve(ended(events).id, stream=True, starting_after=last_seen)
        assert [event async for event in resumed] == events[last_seen + 1 :]


async def test_a_stream_can_be_read_after_the_events_of_its_run_are_deleted(
    stage: OpenAIStage, database_url: str
) -> None:
    stage.model.script(Say("one"))
    events = await stream(stage, input="hi")
    await run_sql(database_url, "delete from run_events")

    again = [event async for event in await stage.client.responses.retrieve(ended(events).id, stream=True)]

    assert types(again) == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    assert ended(again) == ended(events)


async def test_a_tool_of_the_service_is_shown_while_it_runs(database: Database) -> None:
    async with open_openai_stage(database) as stage:
        stage.model.script(Call((ToolCall("c", "calculator", '{"expression": "6*7"}'),)), Say("42"))
        events = await stream(stage, input="6*7?")

    names = types(events)
    order = ["mcp_call_arguments.done", "mcp_call.in_progress", "mcp_call.completed", "output_text.delta", "completed"]
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)


async def test_an_approval_is_shown_once_the_run_waits(database: Database) -> None:
    careful = replace(OPEN_AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_openai_stage(database, agent=careful, tools=tool) as stage:
        stage.model.script(Call((ToolCall("call_2", "delete", "{}"),)))
        events = await stream(stage, input="Delete it.")

    assert types(events)[2:] == ["output_item.added", "output_item.done", "completed"]
    assert [item.type for item in ended(events).output] == ["mcp_approval_request"]


async def test_a_text_that_was_taken_back_ends_as_incomplete(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelUnavailable("down"), shown="Never mi"), Say("The answer."))

    events = await stream(stage, input="hi")

    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [getattr(item, "status", None) for item in done] == ["incomplete", "completed"]
    assert ended(events).output_text == "The answer."


async def test_a_failed_turn_ends_its_stream_with_the_reason(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused.")))

    response = ended(await stream(stage, input="hi"))

    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message == "The provider refused."


async def test_a_reader_that_goes_away_stops_nothing(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("The whole answer.", gate=gate))
    response_id = ""
    async with await stage.client.responses.create(model="assistant", input="hi", stream=True) as events:
        async for event in events:
            if event.type == "response.created":
                response_id = event.response.id
                break
    gate.set()

    rest = [event async for event in await stage.client.responses.retrieve(response_id, stream=True)]

    assert ended(rest).output_text == "The whole answer."
    with pytest.raises(openai.NotFoundError):
        await stage.client.responses.retrieve(response_id + "_1", stream=True)


CHAT_WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
CHAT_ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
HI = [{"role": "user", "content": "hi"}]


async def chunks_of(stage: OpenAIStage, **body: Any) -> list[ChatCompletionChunk]:  # noqa: ANN401  # as the client's overloads take them
    """Stream a completion of the one agent."""
    asked = {"model": "assistant", "messages": HI, "stream": True, **body}
    return [chunk async for chunk in await stage.client.chat.completions.create(**asked)]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def reasons(chunks: list[ChatCompletionChunk]) -> list[str]:
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]


async def test_a_stream_begins_with_the_role_and_ends_with_reason_and_usage(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello there, you.", usage=Usage(input_tokens=9, output_tokens=3)))

    chunks = await chunks_of(stage, stream_options={"include_usage": True})

    first, last = chunks[0].choices[0].delta, chunks[-1]
    assert (first.role, first.content) == ("assistant", "")
    assert (text_of(chunks), reasons(chunks)) == ("Hello there, you.", ["stop"])
    assert (last.choices, last.usage and last.usage.total_tokens) == ([], 12)
    assert {chunk.usage for chunk in chunks[:-1]} == {None}
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_is_left_out_unless_it_is_asked_for(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))

    raw = await stage.http.post("/v1/chat/completions", json={"model": "assistant", "messages": HI, "stream": True})

    lines = [line for line in raw.text.split("\n\n") if line]
    assert (lines[-1], "usage" in raw.text) == ("data: [DONE]", False)
    assert raw.headers["content-type"].startswith("text/event-stream")
    assert "x-run-id" in raw.headers
    assert "x-session-id" not in raw.headers


async def test_calls_of_client_tools_come_in_pieces(stage: OpenAIStage) -> None:
    other = ToolCall("call_2", "weather", '{"town": "Bonn"}')
    stage.model.script(Call((CHAT_ASKS_WEATHER, other), text="I look.", is_streamed=True))

    async with stage.client.chat.completions.stream(
        model="assistant", messages=[{"role": "user", "content": "Rain?"}], tools=[CHAT_WEATHER]
    ) as stream:
        completion = await stream.get_final_completion()

    choice = completion.choices[0]
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    assert calls == [
        ("call_1", "weather", '{"town": "Graz"}'),
        ("call_2", "weather", '{"town": "Bonn"}'),
    ]
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")


async def test_tools_of_the_service_are_not_shown_and_the_texts_around_them_are(stage: OpenAIStage) -> None:
    calculates = ToolCall("c", "calculator", '{"expression": "6*7"}')
    stage.model.script(Call((calculates,), text="I calculate.", is_streamed=True), Say("It is 42"))

    chunks = await chunks_of(stage)

    assert (text_of(chunks), reasons(chunks)) == ("I calculate.\n\nIt is 42", ["stop"])


async def test_an_answer_in_a_format_comes_as_a_whole_when_it_fits(stage: OpenAIStage) -> None:
    stage.model.script(Say("not JSON"), Say('{"n": 1}'))
    schema = {"name": "n", "schema": {"type": "object", "required": ["n"]}}

    chunks = await chunks_of(stage, response_format={"type": "json_schema", "json_schema": schema})

    assert text_of(chunks) == '{"n": 1}'


async def test_a_question_of_the_model_ends_the_stream_as_text(database: Database) -> None:
    asks = ToolCall("q", "ask_user", '{"question": "Which town?"}')
    async with open_openai_stage(database, agent=replace(OPEN_AGENT, tools=("ask_user",))) as stage:
        stage.model.script(Call((asks,), text="One thing:", is_streamed=True))
        chunks = await chunks_of(stage)

    assert (text_of(chunks), reasons(chunks)) == ("One thing:\n\nWhich town?", ["stop"])


async def test_a_turn_that_fails_before_any_text_has_an_http_status(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused.")))

    with pytest.raises(openai.InternalServerError, match="The provider refused"):
        await chunks_of(stage)


async def test_a_turn_that_fails_later_raises_in_the_stream(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused."), shown="Hel"))

    with pytest.raises(openai.APIError, match="The provider refused") as raised:
        await chunks_of(stage)

    assert raised.value.code == "model_rejected"


@pytest.mark.parametrize(
    ("again", "told"), [("Hello there.", "Hello there."), ("Good day to you.", None), ("Hel", None)]
)
async def test_an_answer_that_is_begun_again_goes_on_if_it_has_the_same_beginning(
    stage: OpenAIStage, again: str, told: str | None
) -> None:
    stage.model.script(Fail(ModelUnavailable("Away."), shown="Hello"), Say(again))

    if told is None:
        with pytest.raises(openai.APIError, match="begun again") as raised:
            await chunks_of(stage)
        assert raised.value.code == "answer_restarted"
    else:
        assert text_of(await chunks_of(stage)) == told


async def test_characters_that_some_readers_take_for_line_ends_are_escaped(stage: OpenAIStage) -> None:
    stage.model.script(Say("a\u2028b\u0085c"))

    raw = await stage.http.post("/v1/chat/completions", json={"model": "assistant", "messages": HI, "stream": True})

    assert "\u2028" not in raw.text
    shown = [json.loads(line.removeprefix("data: ")) for line in raw.text.split("\n\n") if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in shown) == "a\u2028b\u0085c"


@pytest.mark.parametrize(("headers", "status"), [({}, "cancelled"), ({"X-Session-Id": "s"}, "running")])
async def test_a_client_that_goes_away_ends_a_turn_that_nothing_keeps(
    stage: OpenAIStage, database_url: str, headers: dict[str, str], status: str
) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Hel lo", gate=gate))
    asked = {"model": "assistant", "messages": HI, "stream": True}

    async with stage.http.stream("POST", "/v1/chat/completions", json=asked, headers=headers) as response:
        async for line in response.aiter_lines():
            if "Hel" in line:
                break

    async with asyncio.timeout(HANG_SECONDS):
        while not (rows := await run_sql(database_url, "select status, cancel_requested from runs"))[0][1]:
            if status == "running":
                break
            await asyncio.sleep(0.02)
    gate.set()
    assert rows == [("running", status == "cancelled")]
