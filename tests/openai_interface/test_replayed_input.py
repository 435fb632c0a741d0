"""Input that a client has sent or got before: whole chats beside the name of their conversation, and own items."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.openai.referenced_items import MAX_REFERENCES

TURNS = 5
BRIEF = {"role": "system", "content": "Be brief."}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


async def respond(stage: OpenAIStage, given: list[Any], **named: object) -> dict[str, Any]:
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


def reference(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]}


async def test_items_are_named_by_their_ids(stage: OpenAIStage) -> None:
    called = ToolCall("call_1", "weather", "{}")
    stage.model.script(Call((called,), text="I look."), Say("It rains."), Say("You are welcome."))
    question = {"role": "user", "content": "Rain?"}
    text, call = (await respond(stage, [question], tools=[WEATHER]))["output"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}

    (answer,) = (await respond(stage, [question, reference(text), call, result], tools=[WEATHER]))["output"]
    thanks = {"role": "user", "content": "Thanks."}
    chat = [question, reference(text), reference(call), reference(call), result, reference(answer), thanks]
    await respond(stage, chat, tools=[WEATHER])

    said = [(message.content, message.tool_calls) for message in stage.model.requests[-1].prompt.messages]
    assert said == [("Rain?", ()), ("I look.", (called,)), ("rain", ()), ("It rains.", ()), ("Thanks.", ())]


@pytest.mark.parametrize("item", ["rs_1", "msg_" + 32 * "0"])
async def test_a_named_item_that_is_missing_is_refused(stage: OpenAIStage, item: str) -> None:
    chat = [{"type": "item_reference", "id": item}, {"role": "user", "content": "hi"}]

    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": chat})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert item in answer.json()["error"]["message"]


async def test_too_many_named_items_are_refused(stage: OpenAIStage) -> None:
    chat = [{"type": "item_reference", "id": f"msg_{number:032x}"} for number in range(MAX_REFERENCES + 1)]

    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": chat})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert "1,001" in answer.json()["error"]["message"]
