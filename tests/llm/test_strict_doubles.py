"""The provider doubles are as strict as the providers: they would not hide a prompt that a provider refuses."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.provider_double import ProviderDouble, ScriptStep, Verdict, serve_double
from fakes.waiting import HANG_SECONDS

ASKED = {"role": "user", "content": "hello"}
TOOL = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}
SMALL = "double-600-bytes2"


def function(call_id: str, name: str = "look_up") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def tells(call_id: str, content: object = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def ask_openai(double: ProviderDouble, messages: list[object], **more: object) -> httpx.Response:
    body = {"model": "double-8k-bytes2", "messages": messages, **more}
    headers = {"authorization": "Bearer key"}
    return httpx.post(f"{double.url}/chat/completions", timeout=HANG_SECONDS, json=body, headers=headers)


def text(said: str = "hello", **more: object) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look_up", "input": {}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "found"}


def user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


HELLO = user(text())


def ask_anthropic(double: AnthropicDouble, messages: list[object], **more: object) -> httpx.Response:
    body = {"model": "double-8k-bytes2", "max_tokens": 100, "messages": messages, "tools": [TOOL], **more}
    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
    return httpx.post(f"{double.url}/v1/messages", timeout=HANG_SECONDS, json=body, headers=headers)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([ASKED, asks(function("a"), function("b")), tells("a")], "did not have response messages: b"),
        ([ASKED, asks(function("a")), ASKED, tells("a")], "did not have response messages: a"),
        ([ASKED, tells("a")], "must be a response to a preceeding message with 'tool_calls'"),
        ([ASKED, asks(function("a")), tells("b")], "'tool_call_id' of 'b' not found"),
        ([ASKED, asks(function("a")), tells("a"), asks(function("a")), tells("a")], "'a' is used already"),
        ([ASKED, asks(function("a", name="look up")), tells("a")], "does not match pattern"),
        ([ASKED, asks(function("a" * 41)), tells("a" * 41)], "maximum length 40"),
        ([ASKED, asks(function("a")), tells("a", "")], "empty string"),
        ([{"role": "user", "content": " \n"}], "empty string"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "valid URL"),
        ([ASKED, {"role": "assistant", "content": None}], "expected a string, got null"),
        ([], "'messages': empty array"),
    ],
)
def test_messages_that_openai_refuses_are_refused_and_recorded(
    provider_double: ProviderDouble, messages: list[object], said: str
) -> None:
    response = ask_openai(provider_double, messages)

    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
    assert [record.verdict for record in provider_double.requests] == [Verdict.INVALID]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "at least one message is required"),
        ([assistant(text()), HELLO], 'first message must use the "user" role'),
        ([HELLO, assistant(text())], "does not support assistant message prefill"),
        ([HELLO, {"role": "assistant", "content": []}, HELLO], "all messages must have non-empty content"),
        ([user(text(" \n"))], "messages: text content blocks must contain non-whitespace text"),
        ([HELLO, assistant(call("a"), call("b")), user(result("a"))], "immediately after: b."),
        ([HELLO, assistant(call("a")), user(text(), result("a"))], "immediately after: a."),
        ([user(result("a"))], "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."),
        ([HELLO, assistant(call("a")), user(result("a"), result("a"))], "must have a single result"),
        ([HELLO, assistant(call("a"), call("a")), user(result("a"))], "messages.1: `tool_use` ids must be unique"),
        ([HELLO, assistant(call("a.b")), user(result("a.b"))], "id: String should match pattern"),
        ([user({"type": "image", "source": {"type": "file"}})], "expected tags: 'base64', 'url'"),
        ([user(*[text(cache_control={"type": "ephemeral"})] * 5)], "A maximum of 4 blocks with cache_control"),
    ],
)
def test_messages_that_anthropic_refuses_are_refused_and_recorded(
    anthropic_double: AnthropicDouble, messages: list[object], said: str
) -> None:
    response = ask_anthropic(anthropic_double, messages)

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert said in response.json()["error"]["message"]
    assert [record.verdict for record in anthropic_double.requests] == [Verdict.INVALID]


def test_a_prompt_one_token_over_the_window_is_refused(provider_double: ProviderDouble) -> None:
    said = "x" * 2 * (8192 - 10 - 100)

    fitting, refused = (
        ask_openai(provider_double, [{"role": "user", "content": content}], max_tokens=100)
        for content in (said, said + "yy")
    )

    assert (fitting.status_code, refused.status_code) == (200, 400)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert "8193 tokens (8093 in the messages, 100 in the completion)" in refused.json()["error"]["message"]
    assert [record.verdict for record in provider_double.requests] == [Verdict.ANSWERED, Verdict.OVER_WINDOW]


def test_anthropics_window_is_kept_for_prompt_and_answer(anthropic_double: AnthropicDouble) -> None:
    fits, full, over = (
        ask_anthropic(anthropic_double, [user(text("word " * words))], model=SMALL, tools=None, max_tokens=most)
        for words, most in ((100, 300), (100, 599), (1000, 1))
    )
    counted = [record.prompt_tokens for record in anthropic_double.requests]

    assert fits.json()["usage"]["input_tokens"] == counted[0]
    assert f"exceed context limit: {counted[1]} + 599 > 600" in full.json()["error"]["message"]
    assert over.json()["error"]["message"] == f"prompt is too long: {counted[2]} tokens > 600 maximum"
    assert [record.verdict for record in anthropic_double.requests][1:] == [Verdict.OVER_WINDOW] * 2


@pytest.fixture
def own_double() -> Iterator[ProviderDouble]:
    with serve_double(ProviderDouble()) as double:
        yield double


def test_an_unused_step_of_a_script_fails_the_test(own_double: ProviderDouble) -> None:
    own_double.script(ScriptStep(text="one"), ScriptStep(text="two"))

    ask_openai(own_double, [ASKED])

    with pytest.raises(AssertionError, match="1 steps of the script '' were not asked for"):
        own_double.assert_script_used()


def test_a_request_beyond_the_script_is_refused_and_fails_the_test(own_double: ProviderDouble) -> None:
    own_double.script(ScriptStep(text="one"))

    answered, refused = (ask_openai(own_double, [ASKED]) for _ in range(2))

    assert (answered.status_code, refused.status_code) == (200, 400)
    with pytest.raises(AssertionError, match="had no step left"):
        own_double.assert_script_used()
