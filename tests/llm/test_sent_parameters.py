"""An agent's parameters on the wire of each provider, and those that a provider does not take."""

import json
from dataclasses import replace

import pytest

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, address_for, hear, simple_request
from fakes.raw_http_server import EVENT_STREAM, Answer, serve_raw
from throughline.domain.errors import SettingInvalid
from throughline.domain.prompt import NO_PARAMETERS, ModelParameters, ToolSpec
from throughline.llm.registry import ModelRegistry

COMMON = ModelParameters(temperature=0.0, top_p=0.5, stop=("END",), parallel_tool_calls=False, body={"top_k": 20})
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


async def test_openai_is_sent_what_is_set_and_nothing_else() -> None:
    given = replace(COMMON, seed=7, reasoning_effort="low")
    heard = await hear(OPENAI_SAYS_OK, request=replace(simple_request(), parameters=given))
    plain = await hear(OPENAI_SAYS_OK)

    added = {name: value for name, value in heard.sent.items() if name not in plain.sent}
    assert added == {
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "top_k": 20,
    }


async def test_parallel_calls_are_spoken_of_only_with_tools() -> None:
    with_tools = replace(simple_request(), tools=(TOOL,), parameters=COMMON)

    assert (await hear(OPENAI_SAYS_OK, request=with_tools)).sent["parallel_tool_calls"] is False
    anthropic = (await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", with_tools)).sent
    assert anthropic["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_anthropic_is_sent_them_under_its_names() -> None:
    given = replace(COMMON, reasoning_effort="low")
    sent = (await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", replace(simple_request(), parameters=given))).sent

    assert (sent["temperature"], sent["top_p"], sent["stop_sequences"], sent["top_k"]) == (0.0, 0.5, ["END"], 20)
    assert sent["output_config"] == {"effort": "low"}
    assert "stop" not in sent


async def test_gemini_is_asked_for_its_thoughts() -> None:
    body = '{"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}'
    answer = Answer([f"data: {body}\r\n\r\n"], content_type=EVENT_STREAM)
    given = ModelParameters(include_thoughts=True)

    sent = (await hear(answer, "google_genai:gemini-test", replace(simple_request(), parameters=given))).sent
    plain = (await hear(answer, "google_genai:gemini-test")).sent

    assert '"thinkingConfig": {"include_thoughts": true}' in json.dumps(sent)
    assert "thinkingConfig" not in json.dumps(plain)


@pytest.mark.parametrize(
    ("model", "answer"), [("gpt-4o", OPENAI_SAYS_OK), ("anthropic:claude-test", ANTHROPIC_SAYS_OK)]
)
async def test_headers_are_sent_beside_the_services_own(
    model: str, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "own-key-1")
    registry = ModelRegistry(replace(CONFIG, read_variable=lambda _: "own-key-1"))
    request = replace(simple_request(), parameters=ModelParameters(headers={"X-Team": "search"}))
    async with serve_raw(answer) as server:  # type: ignore[arg-type]  # an Answer
        chat_model = registry.get(model, address_for(model, server), "OWN_KEY")
        _ = [event async for event in chat_model.stream(request)]
        await registry.close()

    assert "x-team: search" in server.heads[0].lower()
    assert "own-key-1" in server.heads[0]


@pytest.mark.parametrize(
    ("model", "parameters", "refused"),
    [
        ("anthropic:claude-test", ModelParameters(seed=1), "seed"),
        ("google_genai:gemini-test", ModelParameters(body={"a": 1}), "body"),
        ("google_genai:gemini-test", ModelParameters(parallel_tool_calls=True), "parallel_tool_calls"),
    ],
)
def test_what_a_provider_does_not_take_is_refused_before_any_call(
    model: str, parameters: ModelParameters, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "test-key")
    chat_model = ModelRegistry().get(model)

    chat_model.check_parameters(NO_PARAMETERS)
    with pytest.raises(SettingInvalid) as caught:
        chat_model.check_parameters(parameters)

    assert f"takes no {refused}: remove it. It takes: " in caught.value.detail


def test_the_offline_model_takes_all() -> None:
    given = replace(COMMON, seed=1, headers={"a": "b"})

    assert ModelRegistry().get("offline").check_parameters(given) is None  # type: ignore[func-returns-value]  # it raises
