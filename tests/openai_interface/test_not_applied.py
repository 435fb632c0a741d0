"""Fields that are taken and not applied: the answer names them, in every form that an answer has."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say
from throughline.db.database import Database

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


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


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
