"""Errors name fields and objects as the client knows them, whichever part of the service raises them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import openai
import pytest
import websockets
from fastapi.routing import iter_route_contexts
from jsonschema_rs import Draft202012Validator

from fakes.api_stage import set_stage
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import ASKS_WEATHER, WEATHER, create
from openai_interface.test_websockets import address_of
from throughline.db.database import Database
from throughline.domain.errors import InvalidInput
from throughline.openai.errors import CHAT_WORDS, INSTEAD, PRESENT, RESPONSE_WORDS

SCHEMA = {"type": "object", "properties": {"name": {"$ref": "https://example.com/name"}}}
RESPONSE_FORMAT = {"format": {"type": "json_schema", "name": "town", "schema": SCHEMA}}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA}}
HI = [{"role": "user", "content": "hi"}]
ID = "01a218fe-4771-7739-96c7-399ada79ae2a"
DIGITS = UUID(ID).hex


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


async def test_the_client_is_told_what_to_use_in_place_of_embeddings(stage: OpenAIStage) -> None:
    with pytest.raises(openai.NotFoundError, match=r"no /v1/embeddings\. Ask the provider") as raised:
        await stage.client.embeddings.create(model="assistant", input="hi")

    assert (raised.value.code, raised.value.type) == ("route_not_found", "invalid_request_error")


@pytest.mark.parametrize("name", INSTEAD)
@pytest.mark.parametrize(("method", "rest"), [("POST", ""), ("GET", ""), ("GET", "/x_1"), ("DELETE", "/x_1/y")])
async def test_each_absent_route_has_an_error_with_a_remedy(
    stage: OpenAIStage, name: str, method: str, rest: str
) -> None:
    answer = await stage.http.request(method, f"/v1/{name}{rest}")

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "route_not_found", None)
    assert error["message"] == f"This service has no /v1/{name}. {INSTEAD[name]}"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions/chatcmpl-1", 404, "route_not_found"),
        ("POST", "/v1/responses/resp_1/nothing", 404, "route_not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/assistant", 405, "method_not_allowed"),
        ("PUT", "/v1/conversations", 405, "method_not_allowed"),
    ],
)
async def test_unknown_routes_beside_the_present_ones_are_told_in_the_same_form(
    stage: OpenAIStage, method: str, path: str, status: int, code: str
) -> None:
    answer = await stage.http.request(method, path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("allow" in answer.headers) is (status == 405)


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/session", "/embeddings", "/v1/embeddingsx"])
async def test_other_unknown_routes_have_problem_documents(stage: OpenAIStage, path: str) -> None:
    answer = await stage.http.post(path)

    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/route_not_found")


CHAT = {"model": "assistant", "messages": [{"role": "user", "content": "hi"}]}
RESPONSE = {"model": "assistant", "input": "hi"}
HARMLESS_CHAT = {
    "top_p": 0.5,
    "presence_penalty": 0.1,
    "frequency_penalty": -0.1,
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "prompt_cache_retention": "24h",
    "top_k": 40,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": 1},
    "seed": 7,
    "stop": ["END"],
    "reasoning_effort": "high",
    "verbosity": "low",
    "prediction": {"type": "content", "content": "x"},
}
HARMLESS_RESPONSE = {
    "top_p": 0.5,
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low", "summary": "auto"},
    "truncation": "disabled",
    "context_management": [{"type": "compaction"}],
    "include": ["reasoning.encrypted_content"],
}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_chat_completion_names_what_is_not_applied(stage: OpenAIStage, is_streamed: bool) -> None:  # noqa: FBT001  # as pytest gives it
    stage.model.script(Say("Hello."))

    asked = {**CHAT, **HARMLESS_CHAT, "user": "u", "stream": is_streamed}
    answer = await stage.http.post("/v1/chat/completions", json=asked)

    assert (answer.status_code, answer.headers["x-not-applied"]) == (200, ", ".join(HARMLESS_CHAT))


@pytest.mark.parametrize("further", [{}, {"stream": True}, {"background": True}, {"store": False}])
async def test_a_response_names_what_is_not_applied(stage: OpenAIStage, further: dict[str, bool]) -> None:
    stage.model.script(Say("Hello."))

    asked = {**RESPONSE, **HARMLESS_RESPONSE, "text": {"verbosity": "low"}, **further}
    answer = await stage.http.post("/v1/responses", json=asked)

    named = [*HARMLESS_RESPONSE, "text.verbosity"]
    assert (answer.status_code, answer.headers["x-not-applied"]) == (200, ", ".join(named))
    first = answer.text.partition("data: ")[2].partition("\n")[0] if "stream" in further else answer.text
    shown = json.loads(first)
    shown = shown.get("response", shown)
    assert (shown["not_applied"], shown["top_p"], shown["parallel_tool_calls"]) == (named, 1.0, True)
    read = (await stage.http.get(f"/v1/responses/{shown['id']}")).json()
    assert read["not_applied"] == named


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("chat/completions", {**CHAT, "top_p": 1, "seed": None, "stop": [], "verbosity": "medium", "min_p": 0}),
        ("responses", {**RESPONSE, "top_p": 1.0, "include": [], "truncation": "auto", "reasoning": {"effort": None}}),
    ],
)
async def test_values_that_mean_nothing_are_not_named(stage: OpenAIStage, path: str, asked: dict[str, Any]) -> None:
    stage.model.script(Say("Hello."))

    answer = await stage.http.post(f"/v1/{path}", json=asked)

    assert (answer.status_code, "x-not-applied" in answer.headers) == (200, False)
    assert "not_applied" not in answer.json()


async def test_what_is_stored_anyway_is_told_from_store_false(stage: OpenAIStage) -> None:
    stage.model.script(Say("One."), Say("Two."))
    conversation = (await stage.http.post("/v1/conversations", json={})).json()["id"]

    named = await stage.http.post(
        "/v1/chat/completions", json={**CHAT, "store": False, "metadata": {"session_id": "mine"}}
    )
    joined = await stage.http.post("/v1/responses", json={**RESPONSE, "store": False, "conversation": conversation})

    assert [answer.headers["x-not-applied"] for answer in (named, joined)] == ["store", "store"]


async def test_one_named_tool_is_called_alone_without_being_told(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))
    tool = {"type": "function", "function": {"name": "town"}}

    answer = await stage.http.post(
        "/v1/chat/completions", json={**CHAT, "tools": [tool], "tool_choice": tool, "parallel_tool_calls": False}
    )

    assert (answer.status_code, "x-not-applied" in answer.headers) == (200, False)


async def test_counting_takes_the_same_fields(stage: OpenAIStage) -> None:
    answer = await stage.http.post("/v1/responses/input_tokens", json={**RESPONSE, **HARMLESS_RESPONSE})

    assert (answer.status_code, answer.headers["x-not-applied"]) == (200, ", ".join(HARMLESS_RESPONSE))


async def test_readers_may_ask_for_what_cannot_be_included(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))
    made = (await stage.http.post("/v1/responses", json=RESPONSE)).json()
    path = f"/v1/responses/{made['id']}"

    read = await stage.client.responses.with_raw_response.retrieve(made["id"], include=["reasoning.encrypted_content"])
    streamed = await stage.http.get(path, params={"stream": True, "include": "reasoning.encrypted_content"})
    listed = await stage.client.responses.input_items.with_raw_response.list(
        made["id"], include=["message.input_image.image_url"]
    )

    assert {one.headers["x-not-applied"] for one in (read, streamed, listed)} == {"include"}
    assert "x-not-applied" not in (await stage.http.get(path)).headers


RECORDED = Path(__file__).with_name("client_requests.jsonl")
NEEDS_NOTHING = "/v1/models"


@pytest.fixture
async def document(database: Database) -> dict[str, Any]:
    async with set_stage(database).client() as client:
        answer = await client.get("/openapi-openai.json")
        assert (await client.head("/openapi-openai.json")).status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_it_has_all_of_openais_routes_and_the_other_document_names_it(
    database: Database, document: dict[str, Any]
) -> None:
    stage = set_stage(database)
    async with stage.client() as client:
        other = (await client.get("/openapi.json")).json()
    served = {
        (route.path_format, method.lower())
        for route in iter_route_contexts(stage.app.routes)
        if (route.path_format or "").startswith(tuple(f"/v1/{name}" for name in PRESENT))
        for method in route.methods or ()
    }

    assert {(path, method) for path, item in document["paths"].items() for method in item} == served
    assert document["paths"].keys() & other["paths"].keys() == set()
    assert "/openapi-openai.json" in other["info"]["description"]
    assert not any("CreateResponse" in name for name in other["components"]["schemas"])
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids)


def test_it_describes_only_headers_that_its_routes_have(document: dict[str, Any]) -> None:
    assert (*document["components"]["parameters"], *document["components"]["headers"]) == ("On-Behalf-Of",)


def test_bodies_that_clients_send_fit_their_schemas(document: dict[str, Any]) -> None:
    checked = 0
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        sent = json.loads(line)
        operation = document["paths"][sent["path"]]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator({**document, **schema}).validate(sent["body"])
        checked += 1

    assert checked > 50
