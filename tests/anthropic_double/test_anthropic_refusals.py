"""What Anthropic refuses, the double refuses, in the real one's words."""

from typing import Any

import httpx
import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.anthropic_double.messages_request import MAX_BODY_BYTES, parse_body
from fakes.anthropic_double.refusals import Refused
from fakes.provider_double import Verdict
from fakes.waiting import HANG_SECONDS

MODEL = "double-8k-cl100k"
HEADERS = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
TOOL = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}
MARKER = {"type": "ephemeral"}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def text(said: str = "hello", **more: object) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def image(source: object) -> dict[str, Any]:
    return {"type": "image", "source": source}


def call(call_id: str, name: str = "look_up", given: object = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if given is None else given}


def result(call_id: str, content: object = "found", **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


HELLO = user(text())


def post(double: AnthropicDouble, body: object, path: str = "/v1/messages", **headers: str) -> httpx.Response:
    return httpx.post(f"{double.url}{path}", timeout=HANG_SECONDS, json=body, headers={**HEADERS, **headers})


def ask(double: AnthropicDouble, *messages: object, **more: object) -> httpx.Response:
    return post(double, {"model": MODEL, "max_tokens": 100, "messages": list(messages), "tools": [TOOL], **more})


def error_of(response: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert set(body) == {"type", "error", "request_id"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"type", "message"}
    return error


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "at least one message is required"),
        (["x"], "messages.0: Input should be a valid dictionary"),
        ([{"role": "system", "content": "x"}], "messages.0.role: Input should be 'user' or 'assistant'"),
        ([{**HELLO, "name": "bob"}], "messages.0.name: Extra inputs are not permitted"),
        ([assistant(text()), HELLO], 'first message must use the "user" role'),
        ([HELLO, assistant(text())], "does not support assistant message prefill"),
        ([{"role": "user"}], "messages.0.content: Field required"),
        ([{"role": "user", "content": ""}], "user messages must have non-empty content"),
        ([HELLO, {"role": "assistant", "content": []}, HELLO], "all messages must have non-empty content"),
        ([{"role": "user", "content": 3}], "messages.0.content: Input should be a valid list"),
        ([user(text(""))], "messages: text content blocks must be non-empty"),
        ([user(text(" \n"))], "messages: text content blocks must contain non-whitespace text"),
        ([{"role": "user", "content": " "}], "must contain non-whitespace text"),
        ([user(text(id="x"))], "messages.0.content.0.text.id: Extra inputs are not permitted"),
        ([user({"type": "image_url", "image_url": {"url": "https://x"}})], "Input tag 'image_url' found"),
        ([user(call("a"))], "Input tag 'tool_use' found"),
        ([HELLO, assistant(call("a")), HELLO], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ([HELLO, assistant(call("a"), call("b")), user(result("a"))], "immediately after: b."),
        ([HELLO, assistant(call("a")), user(text(), result("a"))], "immediately after: a."),
        ([HELLO, assistant(call("a")), HELLO, user(result("a"))], "immediately after: a."),
        ([user(result("a"))], "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."),
        ([HELLO, assistant(call("a")), user(result("a")), user(result("a"))], "unexpected `tool_use_id`"),
        ([HELLO, assistant(call("a")), user(result("a"), result("a"))], "must have a single result"),
        ([HELLO, assistant(call("a"), call("a")), user(result("a"))], "messages.1: `tool_use` ids must be unique"),
        (
            [HELLO, assistant(call("a")), user(result("a")), assistant(call("a")), user(result("a"))],
            "messages.3: `tool_use` ids must be unique",
        ),
        ([HELLO, assistant(call("a.b")), user(result("a.b"))], "id: String should match pattern"),
        ([HELLO, assistant(call("a", name="look up")), user(result("a"))], "name: String should match pattern"),
        ([HELLO, assistant(call("a", given="{}")), user(result("a"))], "input: Input should be a valid dictionary"),
        ([HELLO, assistant(call("a")), user(result("a", "", is_error=True))], "cannot be empty if `is_error` is true"),
        ([HELLO, assistant(call("a")), user(result("a", [text("")]))], "text content blocks must be non-empty"),
        (
            [HELLO, assistant(call("a")), user(result("a", [text(cache_control=MARKER)]))],
            "tool_result.content.0.cache_control: Extra inputs are not permitted",
        ),
        ([user(image({"type": "url", "url": "http://example.org/a.png"}))], "Only HTTPS URLs are supported"),
        ([user(image({"type": "file", "file_id": "x"}))], "expected tags: 'base64', 'url'"),
        ([user(image({**PNG, "media_type": "image/svg+xml"}))], "media_type: Input should be 'image/jpeg'"),
        ([user(image({**PNG, "data": "data:image/png;base64,AA=="}))], "Invalid base64 data"),
        ([user(image({**PNG, "data": ""}))], "image cannot be empty"),
        ([user(text(cache_control={"type": "for ever"}))], "cache_control: Input should be"),
        ([user(text(cache_control={**MARKER, "ttl": "1d"}))], "ttl: Input should be '5m' or '1h'"),
        (
            [user(*[text(cache_control=MARKER)] * 5)],
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ],
)
def test_messages_anthropic_refuses_are_refused_and_recorded(
    anthropic_double: AnthropicDouble, messages: list[object], said: str
) -> None:
    response = ask(anthropic_double, *messages)

    assert response.status_code == 400
    assert error_of(response)["type"] == "invalid_request_error"
    assert said in error_of(response)["message"]
    assert [record.verdict for record in anthropic_double.requests] == [Verdict.INVALID]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
        ({"system": ""}, "system: text content blocks must be non-empty"),
        ({"system": [text(" ")]}, "system: text content blocks must contain non-whitespace text"),
        ({"system": [image(PNG)]}, "expected tags: 'text'"),
        ({"invented": 1}, "invented: Extra inputs are not permitted"),
        ({"stream_options": {}}, "stream_options: Extra inputs are not permitted"),
        ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
        ({"tools": [{**TOOL, "name": "look.up"}]}, "tools.0.custom.name: String should match pattern"),
        ({"tools": [{**TOOL, "input_schema": {}}]}, "tools.0.custom.input_schema.type: Field required"),
        ({"tools": [{"name": "x"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [{"type": "function", "function": {}}]}, "Input tag 'function'"),
        ({"tools": [], "tool_choice": {"type": "none"}}, "only be specified while providing tools"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "Tool 'other' not found"),
    ],
)
def test_parameters_anthropic_refuses_are_refused(
    anthropic_double: AnthropicDouble, body: dict[str, object], said: str
) -> None:
    response = ask(anthropic_double, HELLO, **body)

    assert response.status_code == 400
    assert said in error_of(response)["message"]


def test_calls_in_a_conversation_need_tools(anthropic_double: AnthropicDouble) -> None:
    messages = [HELLO, assistant(call("a")), user(result("a"))]

    response = ask(anthropic_double, *messages, tools=[])

    assert "must define tools" in error_of(response)["message"]


@pytest.mark.parametrize("raw", ["{", "[]", '{"messages": "\\ud800"}', "[" * 100_000])
def test_a_body_that_is_no_json_object_of_whole_characters_is_refused(
    anthropic_double: AnthropicDouble, raw: str
) -> None:
    response = httpx.post(f"{anthropic_double.url}/v1/messages", timeout=HANG_SECONDS, content=raw, headers=HEADERS)

    assert (response.status_code, error_of(response)["type"]) == (400, "invalid_request_error")


def test_key_version_and_model_are_asked_for(anthropic_double: AnthropicDouble) -> None:
    body = {"model": "claude-9", "max_tokens": 1, "messages": [HELLO]}
    url = f"{anthropic_double.url}/v1/messages"

    keyless = httpx.post(url, timeout=HANG_SECONDS, json=body, headers={"anthropic-version": "2023-06-01"})
    versionless = httpx.post(url, timeout=HANG_SECONDS, json=body, headers={"x-api-key": "key"})
    unknown = post(anthropic_double, body)

    assert [answer.status_code for answer in (keyless, versionless, unknown)] == [401, 400, 404]
    assert error_of(unknown) == {"type": "not_found_error", "message": "model: claude-9"}


def test_a_body_over_32_megabytes_is_too_large() -> None:
    with pytest.raises(Refused) as caught:
        parse_body(b" " * (MAX_BODY_BYTES + 1))

    assert (caught.value.status, caught.value.type) == (413, "request_too_large")


@pytest.mark.parametrize("way", ["cl100k", "o200k", "bytes2"])
def test_a_prompt_over_the_window_is_refused_with_its_numbers(anthropic_double: AnthropicDouble, way: str) -> None:
    model = f"double-600-{way}"

    def ask_for(words: int, max_tokens: int) -> httpx.Response:
        return ask(anthropic_double, user(text("word " * words)), model=model, tools=None, max_tokens=max_tokens)

    fits, full, over = ask_for(100, 300), ask_for(100, 599), ask_for(1000, 1)
    counted = [record.prompt_tokens for record in anthropic_double.requests]

    assert fits.json()["usage"]["input_tokens"] == counted[0]
    assert error_of(full)["message"].startswith(
        f"input length and `max_tokens` exceed context limit: {counted[1]} + 599 > 600"
    )
    assert error_of(over)["message"] == f"prompt is too long: {counted[2]} tokens > 600 maximum"
    assert [record.verdict for record in anthropic_double.requests][1:] == [Verdict.OVER_WINDOW] * 2


def test_the_token_count_route_counts_as_a_call_does(anthropic_double: AnthropicDouble) -> None:
    body = {"model": MODEL, "system": "Be brief.", "messages": [user(text(), image(PNG))], "tools": [TOOL]}

    counted = post(anthropic_double, body, "/v1/messages/count_tokens").json()["input_tokens"]
    used = post(anthropic_double, {**body, "max_tokens": 10}).json()["usage"]["input_tokens"]

    assert counted == used > 1568


def test_neighbours_of_one_role_images_and_results_in_any_order_are_taken(anthropic_double: AnthropicDouble) -> None:
    messages = [
        HELLO,
        user(image(PNG), image({"type": "url", "url": "https://example.org/a.png"})),
        assistant(text("looking"), call("a"), call("b")),
        user(result("b", [text("seen"), image(PNG)]), result("a", ""), text("and?")),
    ]

    response = ask(anthropic_double, *messages)

    assert response.status_code == 200
    assert response.json()["content"] == [{"type": "text", "text": "Answer 4 to: seen and?"}]
