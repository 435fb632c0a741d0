"""Responses through OpenAI's own client, which checks every answer strictly against its types."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall
from pydantic import BaseModel

from fakes.database_wire import DatabaseWire
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import OneTool
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.append import PORTION
from throughline.domain.errors import ModelRejected
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import Usage

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
}
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')


async def create(stage: OpenAIStage, **body: Any) -> Response:  # noqa: ANN401  # as the client's overloads take them
    """Ask for a response of the one agent."""
    response = await stage.client.responses.create(**body)
    assert isinstance(response, Response)
    return response


def prompts(stage: OpenAIStage) -> list[list[object]]:
    return [[message.content for message in request.prompt.messages] for request in stage.model.requests]


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


async def test_a_response_has_the_answer_and_its_usage(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello there.", usage=Usage(input_tokens=9, output_tokens=3, cached_tokens=4)))

    response = await create(stage, model="assistant", input="hi", metadata={"a": "b"})

    assert (response.output_text, response.status, response.metadata) == ("Hello there.", "completed", {"a": "b"})
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.input_tokens_details.cached_tokens) == (12, 4)
    assert await stage.client.responses.retrieve(response.id) == response


async def test_history_instructions_and_images_reach_the_model(stage: OpenAIStage) -> None:
    stage.model.script(Say("Alice."))
    image = "data:image/png;base64,iVBORw0KGgo="

    await create(
        stage,
        model="assistant",
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Answer in English."},
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Hello!"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "My name?"},
                    {"type": "input_image", "image_url": image, "detail": "auto"},
                ],
            },
        ],
    )

    (request,) = stage.model.requests
    assert request.prompt.system.endswith("Be brief.\n\nAnswer in English.")
    said = [message.content for message in request.prompt.messages]
    assert said[:2] == ["My name is Alice.", "Hello!"]
    assert [type(block).__name__ for block in said[2]] == ["TextBlock", "ImageBlock"]


async def test_a_previous_response_continues_its_conversation(stage: OpenAIStage, database_url: str) -> None:
    stage.model.script(Say("one"), Say("two"), Say("fork"))
    first = await create(stage, model="assistant", input="a")
    second = await create(stage, model="assistant", input="b", previous_response_id=first.id)

    fork = await create(stage, model="assistant", input="c", previous_response_id=first.id)

    assert prompts(stage) == [["a"], ["a", "one", "b"], ["a", "one", "c"]]
    assert (second.previous_response_id, fork.previous_response_id) == (first.id, first.id)
    listed = await stage.client.responses.input_items.list(fork.id, order="asc")
    assert [getattr(item, "role", None) for item in listed.data] == ["user", "assistant", "user"]
    assert await run_sql(database_url, "select count(distinct session_id) from runs") == [(2,)]


async def test_a_client_tool_is_called_and_its_output_continues_the_turn(stage: OpenAIStage) -> None:
    usage = Usage(input_tokens=10, output_tokens=5)
    stage.model.script(Call((ASKS_WEATHER,), text="I look.", usage=usage), Say("It rains.", usage=usage))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    (call,) = calls_of(asked)

    answered = await create(
        stage,
        model="assistant",
        previous_response_id=asked.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
        tools=[WEATHER],
    )

    assert (asked.output_text, call.name, call.arguments) == ("I look.", "weather", '{"town": "Graz"}')
    assert (answered.output_text, len(answered.output)) == ("It rains.", 1)
    assert [one.usage and one.usage.total_tokens for one in (asked, answered)] == [15, 15]
    assert await stage.client.responses.retrieve(asked.id) == asked
    assert len(await stage.turns.database.messages.get_messages_after(stage.turns.session.id, None)) == 0
    assert [message.role for message in stage.model.requests[1].prompt.messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
    ]


async def test_outputs_may_come_with_the_whole_history_instead(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    history = [{"role": "user", "content": "Rain?"}]
    asked = await create(stage, model="assistant", input=history, tools=[WEATHER], store=False)
    history += [item.model_dump(exclude_none=True) for item in asked.output]
    history += [{"type": "function_call_output", "call_id": calls_of(asked)[0].call_id, "output": "rain"}]

    answered = await create(stage, model="assistant", input=history, tools=[WEATHER], store=False)

    assert answered.output_text == "It rains."
    with pytest.raises(openai.NotFoundError):
        await create(stage, model="assistant", input="more", previous_response_id=answered.id)


async def test_a_conversation_refuses_a_message_while_it_waits_for_an_output(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    conversation = await stage.client.conversations.create()
    await create(
        stage,
        model="assistant",
        conversation=conversation.id,
        input="Rain?",
        tools=[WEATHER],
    )

    with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_1"):
        await create(stage, model="assistant", conversation=conversation.id, input="Hello?")


class Town(BaseModel):
    """A town."""

    name: str


async def test_a_structured_output_is_parsed(stage: OpenAIStage) -> None:
    stage.model.script(Say('{"name": "Graz"}'))

    parsed = await stage.client.responses.parse(model="assistant", input="A town?", text_format=Town)

    assert parsed.output_parsed == Town(name="Graz")
    wanted = stage.model.requests[0].response_format
    assert wanted is not None
    assert (wanted.name, wanted.strict) == ("Town", True)


async def test_a_forced_tool_is_demanded_once(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("It rains."))
    chosen = {"type": "function", "name": "weather"}
    asked = await create(
        stage,
        model="assistant",
        input="Rain?",
        tools=[WEATHER],
        tool_choice=chosen,
    )
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    await create(stage, model="assistant", previous_response_id=asked.id, input=output)

    assert [request.tool_choice for request in stage.model.requests] == ["weather", None]


async def test_a_tool_of_the_service_is_shown_as_run_already(database: Database) -> None:
    async with open_openai_stage(database) as stage:
        stage.model.script(Call((ToolCall("c", "calculator", '{"expression": "6*7"}'),)), Say("42"))

        response = await create(stage, model="assistant", input="6*7?")

    assert isinstance(response.output[0], McpCall)
    assert (response.output[0].name, response.output[0].output) == ("calculator", "42")
    assert response.output_text == "42"


async def test_an_approval_is_asked_and_given(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    careful = replace(OPEN_AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
    async with open_openai_stage(database, agent=careful, tools=tool) as stage:
        stage.model.script(Call((ToolCall("call_2", "delete", "{}"),)), Say("Done."))
        asked = await create(stage, model="assistant", input="Delete it.")
        assert isinstance(asked.output[0], McpApprovalRequest)
        assert tool.keys == []
        answer = {"type": "mcp_approval_response", "approval_request_id": asked.output[0].id, "approve": True}

        answered = await create(
            stage,
            model="assistant",
            previous_response_id=asked.id,
            input=[answer],
        )

    assert [item.type for item in answered.output] == ["mcp_call", "message"]
    assert (answered.output_text, len(tool.keys)) == ("Done.", 1)


async def read_when_over(stage: OpenAIStage, response_id: str) -> Response:
    async with asyncio.timeout(HANG_SECONDS):
        while (response := await stage.client.responses.retrieve(response_id)).status in {"queued", "in_progress"}:
            await asyncio.sleep(0.02)
    return response


async def test_a_background_response_is_read_later(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("Slow answer.", gate=gate))
    begun = await create(stage, model="assistant", input="hi", background=True)
    assert begun.status in {"queued", "in_progress"}

    gate.set()

    assert (await read_when_over(stage, begun.id)).output_text == "Slow answer."


async def test_a_response_is_cancelled_and_deleted(stage: OpenAIStage) -> None:
    stage.model.script(Say("Never said.", gate=asyncio.Event()))
    begun = await create(stage, model="assistant", input="hi", background=True)

    await stage.client.responses.cancel(begun.id)

    assert (await read_when_over(stage, begun.id)).status == "cancelled"
    await stage.client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        await stage.client.responses.retrieve(begun.id)


async def test_a_response_that_waits_is_cancelled(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Hello."))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])

    cancelled = await stage.client.responses.cancel(asked.id)

    assert (asked.status, cancelled.status) == ("completed", "cancelled")
    assert [item.type for item in cancelled.output] == ["function_call"]
    assert await read_when_over(stage, asked.id) == cancelled
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    with pytest.raises(openai.ConflictError):
        await create(stage, model="assistant", input=output, previous_response_id=asked.id)
    answered = await create(stage, model="assistant", input="Hello?", previous_response_id=asked.id)
    assert answered.output_text == "Hello."


async def test_an_earlier_response_of_a_turn_that_waits_again_is_not_cancelled(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),)), Say("Rain."))
    first = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
    second = await create(stage, model="assistant", input=output, previous_response_id=first.id)

    unchanged = await stage.client.responses.cancel(first.id)

    output[0]["call_id"] = "call_2"
    answered = await create(stage, model="assistant", input=output, previous_response_id=second.id)
    assert (unchanged.status, answered.output_text) == ("completed", "Rain.")


async def test_a_failed_turn_raises_its_error(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused.")))

    with pytest.raises(openai.InternalServerError, match="The provider refused") as raised:
        await create(stage, model="assistant", input="hi")

    assert raised.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({"max_tool_calls": 3}, "max_tool_calls", "`max_tool_rounds` in the agent's file"),
        ({"prompt": {"id": "x"}}, "prompt", "there are no stored prompts"),
        ({"include": [1]}, "include.0", "Must be text"),
        ({"seed": 3}, "seed", "This field does not exist"),
        ({"input": [{"type": "file_search_call", "id": "x"}]}, "input.0.type", "Must be 'message'"),
        ({"input": "   "}, "input", "no message of a user"),
        ({"input": [{"role": "assistant", "content": "hi"}]}, "input", "no message of a user"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "Must be 'function'"),
        ({"tools": [{**WEATHER, "name": "calculator"}]}, "tools.0.name", "tool 'calculator' of its own"),
        ({"background": True, "store": False}, "store", "has to be stored"),
        ({"previous_response_id": "resp_x", "conversation": "conv_x"}, "previous_response_id", "not both"),
    ],
)
async def test_what_this_service_does_not_have_is_refused_by_name(
    stage: OpenAIStage, body: dict[str, object], param: str, told: str, database_url: str
) -> None:
    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": "hi", **body})

    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert told in error["message"]
    assert await run_sql(database_url, "select count(*) from runs") == [(0,)]


@pytest.mark.parametrize("response_id", ["resp_1", "x", "resp_" + "0" * 32, "resp_" + "0" * 32 + "_99999999999"])
async def test_an_unknown_response_is_not_found(stage: OpenAIStage, response_id: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        answer = await stage.http.request(method, f"/v1/responses/{response_id}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_two_calls_of_a_step_with_one_id_are_refused(stage: OpenAIStage) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}

    with pytest.raises(openai.BadRequestError, match="two calls with the same id"):
        await create(stage, model="assistant", input=[{"role": "user", "content": "hi"}, call, call, output])


OF_ITSELF = {"session": "select s.id,", "run": "select r.id,", "messages": "select m.id,"}
"""How the statements of the interface itself begin. Those of the turn and of its readers begin otherwise."""


@pytest.fixture
async def wired(wire: DatabaseWire) -> AsyncIterator[Database]:
    database = await Database.open(DatabaseConfig(url=wire.url, pool_size=2))
    yield database
    await database.close()


def read_by(wire: DatabaseWire) -> dict[str, int]:
    """Return how often the interface itself has read what."""
    texts = [" ".join(statement.split()) for statement in wire.statements]
    return {name: sum(text.startswith(part) for text in texts) for name, part in OF_ITSELF.items()}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_response_in_a_conversation_reads_nothing_else(
    wired: Database, wire: DatabaseWire, *, is_streamed: bool
) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        conversation = (await stage.client.conversations.create()).id
        await ask(stage, "a", conversation, is_streamed=False)
        wire.clear()

        text = await ask(stage, "b", conversation, is_streamed=is_streamed)

        assert "two" in text
        assert read_by(wire) == {"session": 0, "run": 0, "messages": 0}


async def test_a_response_that_follows_another_reads_only_that_run(wired: Database, wire: DatabaseWire) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        first = await stage.client.responses.create(model="assistant", input="a")
        wire.clear()

        second = await stage.client.responses.create(model="assistant", input="b", previous_response_id=first.id)

        assert second.output_text == "two"
        assert read_by(wire) == {"session": 0, "run": 1, "messages": 0}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_completion_reads_only_its_session(wired: Database, wire: DatabaseWire, *, is_streamed: bool) -> None:
    async with open_openai_stage(wired) as stage:
        stage.model.script(Say("one"), Say("two"))
        await complete(stage, "a", is_streamed=False)
        wire.clear()

        text = await complete(stage, "b", is_streamed=is_streamed)

        assert "two" in text
        assert read_by(wire) == {"session": 1, "run": 0, "messages": 0}


async def test_a_response_that_called_a_tool_reads_its_messages(wired: Database, wire: DatabaseWire) -> None:
    tools = OneTool("lookup", "found", repeatable=True)
    async with open_openai_stage(wired, agent=replace(OPEN_AGENT, tools=("lookup",)), tools=tools) as stage:
        stage.model.script(Call((ToolCall("c1", "lookup", "{}"),)), Say("done"))
        conversation = (await stage.client.conversations.create()).id
        wire.clear()

        text = await ask(stage, "a", conversation, is_streamed=False)

        assert "done" in text
        assert "mcp_call" in text
        assert read_by(wire) == {"session": 0, "run": 0, "messages": 1}


async def test_a_long_conversation_is_stored_in_few_statements(wired: Database, wire: DatabaseWire) -> None:
    items = [{"role": "user", "content": f"text {number}"} for number in range(PORTION + 1)]
    async with open_openai_stage(wired) as stage:
        wire.clear()

        created = await stage.client.conversations.create(items=items)  # type: ignore[arg-type]  # dicts

        assert sum("insert into messages" in statement for statement in wire.statements) == 2
        assert len(wire.statements) < PORTION  # also those of the claims that go on meanwhile
        listed = [item async for item in stage.client.conversations.items.list(created.id, order="asc", limit=100)]
        texts = [item.content[0].text for item in listed if item.type == "message"]  # type: ignore[union-attr]  # texts
        assert texts == [item["content"] for item in items]


async def ask(stage: OpenAIStage, text: str, conversation: str, *, is_streamed: bool) -> str:
    """Return the answer to the request as it was sent."""
    body = {"model": "assistant", "input": text, "conversation": conversation, "stream": is_streamed}
    response = await stage.http.post("/v1/responses", json=body)
    return response.raise_for_status().text


async def complete(stage: OpenAIStage, text: str, *, is_streamed: bool) -> str:
    """Return the answer to a request for a chat completion in one session as it was sent."""
    body = {"model": "assistant", "messages": [{"role": "user", "content": text}], "stream": is_streamed}
    response = await stage.http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "talk"})
    return response.raise_for_status().text
