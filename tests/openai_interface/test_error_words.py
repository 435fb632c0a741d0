"""Errors name fields and objects as the client knows them, whichever part of the service raises them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
import websockets

from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, create
from openai_interface.test_websockets import address_of
from throughline.db.database import Database
from throughline.domain.errors import InvalidInput
from throughline.openai.errors import CHAT_WORDS, RESPONSE_WORDS

SCHEMA = {"type": "object", "properties": {"name": {"$ref": "https://example.com/name"}}}
RESPONSE_FORMAT = {"format": {"type": "json_schema", "name": "town", "schema": SCHEMA}}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA}}
HI = [{"role": "user", "content": "hi"}]
ID = "01a218fe-4771-7739-96c7-399ada79ae2a"
DIGITS = UUID(ID).hex


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


@pytest.fixture
async def closed(database: Database) -> AsyncIterator[OpenAIStage]:
    """The application with a strict agent that allows requests nothing."""
    strict = replace(OPEN_AGENT, overrides=frozenset(), strict_overrides=True)
    async with open_openai_stage(database, agent=strict) as stage:
        yield stage


async def refusal(stage: OpenAIStage, path: str, body: object) -> tuple[str, str]:
    """Return the field and the text of the error."""
    answer = await stage.http.post(path, json=body)
    error = answer.json()["error"]
    return error["param"], error["message"]


async def test_a_format_that_the_agent_forbids_is_named_as_the_request_did(closed: OpenAIStage) -> None:
    response = {"model": "assistant", "input": "hi", "text": RESPONSE_FORMAT}
    chat = {"model": "assistant", "messages": HI, "response_format": CHAT_FORMAT}

    of_response = await refusal(closed, "/v1/responses", response)
    of_chat = await refusal(closed, "/v1/chat/completions", chat)

    assert (of_response[0], of_chat[0]) == ("text.format", "response_format")
    assert of_response[1].startswith("text.format: The agent 'assistant' does not allow")
    assert of_chat[1].startswith("The agent 'assistant' does not allow")


async def test_a_schema_that_cannot_be_checked_is_named_as_the_request_did(stage: OpenAIStage) -> None:
    response = {"model": "assistant", "input": "hi", "text": RESPONSE_FORMAT}
    chat = {"model": "assistant", "messages": HI, "response_format": CHAT_FORMAT}

    of_response = await refusal(stage, "/v1/responses", response)
    of_chat = await refusal(stage, "/v1/chat/completions", chat)

    assert (of_response[0], of_chat[0]) == ("text.format.schema", "response_format.json_schema.schema")


async def test_forbidden_system_messages_of_a_chat_are_named_messages(closed: OpenAIStage) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HI]

    param, text = await refusal(closed, "/v1/chat/completions", {"model": "assistant", "messages": messages})

    assert (param, text.partition(": ")[0]) == ("messages", "messages")


async def test_a_missing_conversation_is_named_by_the_id_that_was_sent(stage: OpenAIStage) -> None:
    body = {"model": "assistant", "input": "hi", "conversation": f"conv_{DIGITS}"}

    answer = await stage.http.post("/v1/responses/input_tokens", json=body)

    assert (answer.status_code, answer.json()["error"]["message"]) == (404, f"There is no conversation conv_{DIGITS}.")


async def test_a_busy_conversation_is_told_by_its_id(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one"), Say("Slow.", gate=gate))
    conversation = await stage.client.conversations.create()
    first = await create(stage, model="assistant", input="a", conversation=conversation.id)
    await create(stage, model="assistant", input="b", conversation=conversation.id, background=True)

    item = first.output[0].id
    answer = await stage.http.delete(f"/v1/conversations/{conversation.id}/items/{item}")

    assert answer.status_code == 409
    assert f"of conversation {conversation.id} is not finished." in answer.json()["error"]["message"]
    gate.set()


async def test_an_output_of_an_unknown_call_is_refused_as_input(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    asked = await create(stage, model="assistant", input="Rain?", tools=[WEATHER])
    outputs = [{"type": "function_call_output", "call_id": f"call_{number}", "output": "rain"} for number in (1, 2)]

    param, text = await refusal(
        stage, "/v1/responses", {"model": "assistant", "input": outputs, "previous_response_id": asked.id}
    )

    assert (param, text) == ("input", "The turn does not wait for a call 'call_2'; it waits for: call_1.")


async def test_a_websocket_names_fields_in_the_same_way(closed: OpenAIStage) -> None:
    request = {"type": "response.create", "model": "assistant", "input": "hi", "text": RESPONSE_FORMAT}
    async with websockets.connect(address_of(closed)) as socket:
        await socket.send(json.dumps(request))
        event = json.loads(await socket.recv())

    assert event["error"]["param"] == "text.format"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (f"Session {ID} is archived.", f"Conversation conv_{DIGITS} is archived."),
        (f"The key 'session {ID}' was used before.", f"The key 'session {ID}' was used before."),
        (f"The run {ID} is queued.", f"The run {ID} is queued."),
        ("The session has an unfinished turn.", "The session has an unfinished turn."),
    ],
)
def test_sessions_are_told_as_conversations(ours: str, theirs: str) -> None:
    assert RESPONSE_WORDS.explain(InvalidInput(ours))[0] == theirs
    assert CHAT_WORDS.explain(InvalidInput(ours))[0] == ours
