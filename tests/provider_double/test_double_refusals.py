"""What a strict provider refuses, the double refuses, in the real one's words."""

from typing import Any

import httpx
import pytest

from fakes.provider_double import ProviderDouble, Verdict
from fakes.waiting import HANG_SECONDS

HELLO = {"role": "user", "content": "hello"}
MODEL = "double-8k-cl100k"


def call(call_id: str, name: str = "look_up", arguments: object = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def step(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str, content: object = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(parameters: object, name: str = "look_up") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Looks up.", "parameters": parameters}}


def post(double: ProviderDouble, body: object, **headers: str) -> httpx.Response:
    given = {"authorization": "Bearer key", **headers}
    return httpx.post(f"{double.url}/chat/completions", timeout=HANG_SECONDS, json=body, headers=given)


def ask(double: ProviderDouble, *messages: object, **more: object) -> httpx.Response:
    return post(double, {"model": MODEL, "messages": list(messages), **more})


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([HELLO, step(call("a"), call("b")), result("a")], "did not have response messages: b"),
        ([HELLO, step(call("a")), HELLO], "must be followed by tool messages responding to each 'tool_call_id'"),
        ([HELLO, step(call("a")), HELLO, result("a")], "did not have response messages: a"),
        ([HELLO, result("a")], "must be a response to a preceeding message with 'tool_calls'"),
        ([HELLO, step(call("a")), result("b")], "'tool_call_id' of 'b' not found"),
        ([HELLO, step(call("a")), result("a"), result("a")], "Duplicate value for 'tool_call_id' of 'a'"),
        ([HELLO, step(call("a"), call("a")), result("a")], "'a' is used already"),
        ([HELLO, step(call("a")), result("a"), step(call("a")), result("a")], "'a' is used already"),
        ([HELLO, step(call("a", arguments={"q": 1})), result("a")], "expected a string, but got an object"),
        ([HELLO, step(call("a", name="look up")), result("a")], "does not match pattern"),
        ([HELLO, step(*(call(f"c{number}") for number in range(129)))], "maximum length 128"),
        ([HELLO, step(call("a" * 41)), result("a" * 41)], "maximum length 40"),
        ([HELLO, {"role": "assistant", "content": "x", "tool_calls": []}], "tool_calls': empty array"),
        ([{**HELLO, "tool_calls": [call("a")]}], "Unrecognized parameter"),
        ([HELLO, step(call("a")), result("a", "")], "empty string"),
        ([{"role": "user", "content": ""}], "empty string"),
        ([{"role": "user", "content": " \n"}], "empty string"),
        ([{"role": "user", "content": None}], "expected a string, got null"),
        ([{"role": "user", "content": 3}], "expected one of a string or array of objects"),
        ([{"role": "user", "content": []}], "empty array"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "empty string"),
        ([{"role": "user", "content": [{"type": "tool_use"}]}], "Invalid value: 'tool_use'"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "valid URL"),
        ([HELLO, {"role": "assistant", "content": None}], "expected a string, got null"),
        ([{"role": "system", "content": ""}, HELLO], "empty string"),
        ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
        ([{"content": "x"}], "Missing required parameter: 'messages[0].role'"),
        (["x"], "expected an object, but got a string"),
        ([], "'messages': empty array"),
    ],
)
def test_messages_a_strict_provider_refuses_are_refused_and_recorded(
    provider_double: ProviderDouble, messages: list[object], said: str
) -> None:
    response = ask(provider_double, *messages)

    assert response.status_code == 400
    assert said in error_of(response)["message"]
    assert [record.verdict for record in provider_double.requests] == [Verdict.INVALID]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"tools": []}, "'tools': empty array"),
        ({"tools": [tool({"type": "object"})] * 129}, "maximum length 128"),
        ({"tools": [tool({"type": "object"})] * 2}, "must be unique"),
        ({"tools": [tool({"type": "object"}, name="look.up")]}, "does not match pattern"),
        ({"tools": [tool({"type": "object"}, name="x" * 65)]}, "maximum length 64"),
        ({"tools": [tool({})]}, "schema must be a JSON Schema of 'type: \"object\"'"),
        ({"tools": [tool({"type": "object", "properties": {"q": {"type": "text"}}})]}, "'text' is not valid"),
        ({"tools": [tool({"type": "object", "properties": {"q": {"type": "array"}}})]}, "array schema missing items"),
        ({"tools": [tool({"type": "object", "required": "q"})]}, "is not of type 'array'"),
        ({"tool_choice": "none"}, "only allowed when 'tools' are specified"),
        ({"max_tokens": 0}, "integer below minimum value"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "at the same time is not supported"),
        ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
        ({"invented": 1}, "Unrecognized request argument supplied: invented"),
    ],
)
def test_parameters_a_strict_provider_refuses_are_refused(
    provider_double: ProviderDouble, body: dict[str, object], said: str
) -> None:
    response = ask(provider_double, HELLO, **body)

    assert response.status_code == 400
    assert said in error_of(response)["message"]


@pytest.mark.parametrize("raw", ["{", "[]", '{"messages": "\\ud800"}', "[" * 100_000])
def test_a_body_that_is_no_json_object_of_whole_characters_is_refused(
    provider_double: ProviderDouble, raw: str
) -> None:
    headers = {"authorization": "Bearer key"}
    response = httpx.post(f"{provider_double.url}/chat/completions", timeout=HANG_SECONDS, content=raw, headers=headers)

    assert "could not parse the JSON body" in error_of(response)["message"]


def test_an_unknown_model_is_not_found(provider_double: ProviderDouble) -> None:
    response = post(provider_double, {"model": "gpt-9", "messages": [HELLO]})

    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


def test_a_request_without_a_key_is_unauthorised(provider_double: ProviderDouble) -> None:
    response = post(provider_double, {"model": MODEL, "messages": [HELLO]}, authorization="")

    assert response.status_code == 401


def test_calls_answered_in_any_order_and_images_are_taken(provider_double: ProviderDouble) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
        step(call("a"), call("b"), content="looking"),
        result("b"),
        result("a", [{"type": "text", "text": "found"}]),
    ]

    response = ask(provider_double, *messages, tools=[tool({"type": "object", "properties": {}})])

    assert response.status_code == 200


@pytest.mark.parametrize(
    ("response_format", "said"),
    [
        ("json", "Invalid type for 'response_format': expected an object"),
        ({"type": "yaml"}, "Invalid value: 'yaml'. Supported values are: 'json_object', 'json_schema', 'text'."),
        ({"type": "json_schema"}, "Missing required parameter: 'response_format.json_schema'."),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "'response_format.json_schema.name'"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "'response_format.json_schema.schema'"),
        ({"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}, "does not match pattern"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": []}}, "expected an object"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "x": 1}}, "Unknown parameter"),
    ],
)
def test_a_wrong_response_format_is_refused(
    provider_double: ProviderDouble, response_format: object, said: str
) -> None:
    response = ask(provider_double, HELLO, response_format=response_format)

    assert response.status_code == 400
    assert said in error_of(response)["message"]
