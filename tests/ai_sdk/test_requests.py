"""What is refused, as a sentence that `useChat` shows, and the document of the routes."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from fakes.ai_sdk_stage import ChatStage
from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.scripted_model import Call
from fakes.waiting import HANG_SECONDS
from throughline.ai_sdk.front_end import AI_SDK
from throughline.db.database import Database
from throughline.domain.message import ToolCall

HI = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
RUN = "01947c2e-5100-7000-8000-000000000000"


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"id": "u1", "role": "user", "parts": list(parts)}]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": [HI], "id": None}, "id: Must be text."),
    ({"messages": [HI], "id": ""}, "id: Must have 1 characters or more."),
    ({"messages": [HI], "id": " "}, "id: is blank"),
    ({"messages": [HI], "id": "team/42"}, "id: has a slash"),
    ({"messages": [{"id": "s", "role": "system", "parts": [{"type": "text", "text": "x"}]}]}, "no message of a user"),
    ({"messages": [HI], "id": "x" * 256}, "id: Must have 255 characters or fewer."),
    ({}, "Send `messages`, or `message`"),
    ({"messages": [HI], "message": HI}, "Send `messages`, or `message`"),
    ({"messages": []}, "messages: Must have 1 items or more."),
    ({"messages": "hi"}, "messages: Must be a list."),
    ({"messages": [{"role": "tool", "parts": []}]}, "messages.0.role: Must be 'system', 'user' or 'assistant'."),
    ({"messages": [{"role": "user", "content": "hi"}]}, "messages.0.parts: This field is required."),
    ({"messages": [{"role": "user", "parts": ["hi"]}]}, "messages.0.parts.0: Must be a JSON object."),
    ({"messages": [HI], "trigger": "resume-stream"}, "trigger: Must be"),
    (user(), "no message of a user that says anything"),
    (user({"type": "text", "text": " "}), "no message of a user that says anything"),
    (user({"type": "text", "text": 5}), "messages.0.parts.0.text: Must be text."),
    (user({"type": "file", "mediaType": "text/plain", "url": "data:text/plain,a"}), "type 'text/plain'. Only images"),
    (user({"type": "file", "url": "https://a/b.png"}), "messages.0.parts.0 is a file of the type ''"),
    (user({"type": "file", "mediaType": "image/png", "url": "http://a/b.png"}), "begins with https://"),
    (user({"type": "file", "mediaType": "image/png"}), "begins with https://"),
    (user(*[{"type": "text", "text": "a"}] * 101), "at most 100 texts and images, not 101"),
    ({"messages": [{"id": "x", "role": "assistant", "parts": []}]}, "answer 'x', which this chat does not have"),
    ({"messages": [{"id": RUN, "role": "assistant", "parts": []}]}, "which this chat does not have"),
    (
        {"messages": [{"id": "a", "role": "assistant", "parts": [{"type": "dynamic-tool"}]}, HI]},
        "messages.0.parts.0 is a call of a tool and needs `toolCallId`",
    ),
    ({"messages": [HI], "tools": {"a b": {}}}, "tools.a b"),
    ({"messages": [HI], "tools": {"a": {"inputSchema": {"type": "string"}}}}, "not a JSON schema of type object"),
    ({"messages": [HI], "tools": {"calculator": {}}}, "has a tool 'calculator' of its own"),
]


@pytest.mark.parametrize(("body", "sentence"), BAD)
async def test_a_wrong_body_is_refused_with_a_sentence(stage: ChatStage, body: dict[str, Any], sentence: str) -> None:
    response = await stage.http.post("/ai-sdk/assistant", json={"id": "chat-1", **body})

    assert response.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert sentence in response.text
    assert (await stage.http.get("/v1/sessions")).json()["data"] == []


async def test_requests_that_reach_no_chat_are_refused_with_a_sentence(keyed: ApiStage) -> None:
    async with keyed.client() as http:
        without_key = await http.post("/ai-sdk/assistant", json={"id": "a", "messages": [HI]})
    async with keyed.client(key=await keyed.key("anna")) as http:
        malformed = await http.post("/ai-sdk/assistant", content=b"{")
        unknown = [
            await http.post("/ai-sdk/nobody", json={"id": "a", "messages": [HI]}),
            await http.get("/ai-sdk/nobody/a/messages"),
            await http.get("/ai-sdk/nobody/a/stream"),
            await http.delete("/ai-sdk/nobody/a/stream"),
        ]
        wrong_page = await http.get("/ai-sdk/assistant/a/messages", params={"limit": 0})

    assert (without_key.status_code, without_key.headers["www-authenticate"][:6]) == (401, "Bearer")
    assert (malformed.status_code, wrong_page.status_code) == (400, 422)
    assert [one.status_code for one in unknown] == [404] * 4
    assert {one.text for one in unknown} == {unknown[0].text}
    assert wrong_page.text == "limit: Must be 1 or more."


async def test_a_body_that_does_not_arrive_ends_its_connection(database: Database) -> None:
    config = replace(LOCAL, body_timeout_seconds=0.2)
    async with set_stage(database, config).with_front_ends(config, AI_SDK).served() as http:
        reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        writer.write(
            b"POST /ai-sdk/assistant HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"id"'
        )
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_SECONDS)).lower()
        writer.close()

    assert head.startswith(b"http/1.1 408")
    assert b"connection: close" in head
    assert b"content-type: text/plain" in head


async def test_an_answer_that_gives_its_turn_nothing_is_refused(stage: ChatStage) -> None:
    stage.model.script(Call((ToolCall("call_1", "weather", "{}"),)))
    chat = stage.chat()
    chat.body = {"tools": {"weather": {}}}
    await chat.say("weather?")

    response = await chat.post()

    assert response.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert response.text.startswith("The turn waits for weather (call_1). Give outputs")


async def test_ids_may_have_characters_that_cannot_be_stored(stage: ChatStage) -> None:
    text = "a\x00\ud800"
    asked = {"id": text, "messages": [{**HI, "id": text}], "messageId": text}
    body = json.dumps(asked)

    answers = [
        await stage.http.post("/ai-sdk/assistant", content=body, headers={"Content-Type": "application/json"})
        for _ in range(2)
    ]

    assert [one.status_code for one in answers] == [httpx.codes.OK] * 2
    assert len((await stage.http.get("/v1/sessions")).json()["data"]) == 2


async def test_fields_and_parts_that_are_not_known_are_ignored(stage: ChatStage) -> None:
    parts = [*HI["parts"], {"type": "data-mark", "data": {"a": 1}}, {"type": "source-url", "url": "x"}]

    response = await stage.http.post(
        "/ai-sdk/assistant", json={"id": "a", "messages": [{**HI, "parts": parts, "metadata": {}}], "model": "x"}
    )

    assert response.status_code == httpx.codes.OK


async def test_the_document_has_the_routes_with_their_errors(stage: ChatStage) -> None:
    made = (await stage.http.get("/openapi-ai-sdk.json")).json()
    other = (await stage.http.get("/openapi.json")).json()
    served = {
        (route.path_format, method.lower())
        for route in iter_route_contexts(stage.api.app.routes)
        if (route.path_format or "").startswith("/ai-sdk")
        for method in route.methods or ()
    }

    assert {(path, method) for path, item in made["paths"].items() for method in item} == served
    assert made["paths"].keys() & other["paths"].keys() == set()
    assert "/openapi-ai-sdk.json" in other["info"]["description"]
    send = made["paths"]["/ai-sdk/{agent}"]["post"]
    assert "`queue_full`" in send["responses"]["429"]["description"]
    assert send["responses"]["422"]["content"] == {"text/plain": {"schema": {"type": "string"}}}
    assert "Retry-After" in send["responses"]["503"]["headers"]
