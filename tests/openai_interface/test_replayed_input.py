"""Input that a client has sent or got before: whole chats beside the name of their conversation, and own items."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from throughline.db.database import Database
from throughline.domain.message import ToolCall

TURNS = 5
BRIEF = {"role": "system", "content": "Be brief."}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


async def respond(stage: OpenAIStage, given: list[Any], **named: str) -> dict[str, Any]:
    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": given, **named})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def items_of(stage: OpenAIStage, response: dict[str, Any]) -> list[str]:
    """Return the texts of the conversation up to a response, oldest first."""
    path = f"/v1/responses/{response['id']}/input_items"
    listed = (await stage.http.get(path, params={"order": "asc", "limit": 100})).json()["data"]
    return [item["content"][0]["text"] for item in (*listed, *response["output"])]


@pytest.mark.parametrize("is_whole", [False, True], ids=["new messages", "whole chats"])
@pytest.mark.parametrize("way", ["conversation", "previous_response_id"])
async def test_turns_are_stored_once_however_they_are_continued(stage: OpenAIStage, way: str, is_whole: bool) -> None:  # noqa: FBT001  # as pytest gives it
    stage.model.script(*(Say(f"a{number}") for number in range(TURNS)))
    conversation = (await stage.http.post("/v1/conversations", json={})).json()["id"]
    named = {"conversation": conversation} if way == "conversation" else {}
    chat: list[Any] = []
    response: dict[str, Any] = {}
    for number in range(TURNS):
        question = {"role": "user", "content": f"q{number}"}
        response = await respond(stage, [BRIEF, *(chat if is_whole else []), question], **named)
        chat += [question, *response["output"]]
        named = named if way == "conversation" else {way: response["id"]}

    expected = [f"{sort}{number}" for number in range(TURNS) for sort in "qa"]
    assert await items_of(stage, response) == expected
    assert [message.content for message in stage.model.requests[-1].prompt.messages] == expected[:-1]


async def test_a_whole_chat_behind_an_earlier_response_is_stored_once(stage: OpenAIStage) -> None:
    stage.model.script(Say("a0"), Say("a1"), Say("b1"))
    first = await respond(stage, [{"role": "user", "content": "q0"}])
    await respond(stage, [{"role": "user", "content": "q1"}], previous_response_id=first["id"])

    chat = [{"role": "user", "content": "q0"}, *first["output"], {"role": "user", "content": "p1"}]
    other = await respond(stage, chat, previous_response_id=first["id"])

    assert await items_of(stage, other) == ["q0", "a0", "p1", "b1"]


async def test_history_that_the_conversation_does_not_have_is_stored(stage: OpenAIStage) -> None:
    stage.model.script(Say("a0"), Say("a1"))
    first = await respond(stage, [{"role": "user", "content": "q0"}])

    brought = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a0"}]
    second = await respond(stage, [*brought, {"role": "user", "content": "q1"}], previous_response_id=first["id"])

    assert await items_of(stage, second) == ["q0", "a0", "x", "a0", "q1", "a1"]


async def test_own_items_may_be_sent_twice_in_one_request(stage: OpenAIStage) -> None:
    stage.model.script(Call((ToolCall("call_1", "weather", "{}"),)), Say("Still rain."))
    question = {"role": "user", "content": "Rain?"}
    asked = await stage.http.post("/v1/responses", json={"model": "assistant", "input": [question], "tools": [WEATHER]})
    items = [
        question,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        *asked.json()["output"],
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It rains.", "annotations": []}],
        },
    ]

    answered = await respond(stage, [*items, *items, {"role": "user", "content": "And now?"}])

    assert answered["output"][0]["content"][0]["text"] == "Still rain."
    sent = [message.content for message in stage.model.requests[-1].prompt.messages if message.role == "user"]
    assert sent == ["Rain?", "Rain?", "And now?"]
