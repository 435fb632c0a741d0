"""Streamed chat completions: chunks through OpenAI's own client, resets, failures, and clients that go away."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage

WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


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
    stage.model.script(Call((ASKS_WEATHER, other), text="I look.", is_streamed=True))

    async with stage.client.chat.completions.stream(
        model="assistant", messages=[{"role": "user", "content": "Rain?"}], tools=[WEATHER]
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
