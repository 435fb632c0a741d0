"""What other providers store and imports bring, in the form that OpenAI takes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, hear, refusal_of, simple_request
from fakes.provider_double import ProviderDouble, Verdict
from fakes.provider_double.json_types import Json
from fakes.raw_http_server import (
    EVENT_STREAM,
    JSON,
    Answer,
    anthropic_start,
    anthropic_stream,
    error_answer,
    openai_stream,
    serve_raw,
)
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import AnswerIncomplete, ModelInvalidRequest, ModelUnavailable, ThroughlineError
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import (
    AnswerComplete,
    ModelParameters,
    ModelRequest,
    Prompt,
    PromptMessage,
    ResponseFormat,
)
from throughline.llm.chat_model import MOST_CALLS, within_openai_limits
from throughline.llm.providers import PROVIDERS
from throughline.llm.registry import ModelRegistry
from throughline.llm.translate_messages import moved_to_text, to_langchain
from throughline.ports.models import FormatSupport

IMAGE = ImageBlock("https://example.org/a.png")
OTHER_IMAGE = ImageBlock("data:image/png;base64,iVBORw0KGgo=", detail="low")
LONG_ID = "functions.screenshot:0/" + "y" * 60


def step(*calls: str, text: str = "") -> PromptMessage:
    return PromptMessage(Role.ASSISTANT, text, tuple(ToolCall(call, "shot", "{}") for call in calls))


def result(call: str, content: Content = "done") -> PromptMessage:
    return PromptMessage(Role.TOOL, content, tool_call_id=call, name="shot")


GO = PromptMessage(Role.USER, "go")
ON = PromptMessage(Role.USER, "go on")
SEEN = (GO, step("a", "b"), result("a", (TextBlock("It is"), IMAGE)), result("b", (OTHER_IMAGE,)), ON)
MANY = tuple(f"c{number}" for number in range(2 * MOST_CALLS + 1))
LONG_STEP = (GO, step(*MANY, text="Let me see."), *map(result, MANY), ON)
LONG_IDS = (GO, step(LONG_ID, LONG_ID + "z", "short"), result(LONG_ID), result(LONG_ID + "z"), result("short"), ON)


async def sent_to_openai(messages: Sequence[PromptMessage], double: ProviderDouble) -> tuple[Json, ...]:
    """Ask the strict double, which must answer, and return what it was sent."""
    registry = ModelRegistry(CONFIG)
    model = registry.get("openai:double-128k-cl100k", double.url)
    events = [event async for event in model.stream(ModelRequest(Prompt("Be brief.", tuple(messages)), (), 100))]
    await registry.close()
    assert isinstance(events[-1], AnswerComplete)
    assert [record.verdict for record in double.requests] == [Verdict.ANSWERED]
    return double.requests[0].prompt


def test_a_prompt_within_the_limits_stays_the_same_object() -> None:
    messages = (GO, step("a"), result("a"), PromptMessage(Role.USER, (TextBlock("Look:"), IMAGE)))

    assert within_openai_limits(messages) is messages


def test_images_of_results_stand_in_a_user_message_behind_all_results_of_their_step() -> None:
    messages = within_openai_limits(SEEN)

    roles = [message.role for message in messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER, Role.USER]
    follow, label = (
        TextBlock("[The images of this result follow the results.]"),
        TextBlock("[From the result of shot:]"),
    )
    assert [message.content for message in messages[2:5]] == [
        (TextBlock("It is"), follow),
        (follow,),
        (label, IMAGE, label, OTHER_IMAGE),
    ]
    assert messages[0] is GO
    assert messages[-1] is ON


def test_a_step_of_more_calls_than_openai_takes_becomes_several_with_their_results() -> None:
    messages = within_openai_limits(LONG_STEP)

    steps = [message for message in messages if message.tool_calls]
    assert [len(message.tool_calls) for message in steps] == [MOST_CALLS, MOST_CALLS, 1]
    assert [message.content for message in steps] == ["Let me see.", "", ""]
    assert [call.id for message in steps for call in message.tool_calls] == list(MANY)
    assert [message.tool_call_id for message in messages if message.role is Role.TOOL] == list(MANY)


@pytest.mark.parametrize("messages", [SEEN, LONG_STEP, LONG_IDS], ids=["images", "many calls", "long ids"])
async def test_a_strict_server_takes_it(messages: Sequence[PromptMessage], provider_double: ProviderDouble) -> None:
    sent = await sent_to_openai(messages, provider_double)

    assert sent[-1] == {"role": "user", "content": "go on"}


async def test_a_long_id_becomes_the_same_short_one_for_call_and_result(provider_double: ProviderDouble) -> None:
    sent = await sent_to_openai(LONG_IDS, provider_double)

    asked = [call["id"] for call in sent[2]["tool_calls"]]
    assert asked == [message["tool_call_id"] for message in sent[3:6]]
    assert len(set(asked)) == 3
    assert asked[2] == "short"


async def test_anthropic_is_sent_ids_of_its_alphabet_and_images_in_their_results() -> None:
    messages = (GO, step(LONG_ID), result(LONG_ID, (TextBlock("It is"), IMAGE)))

    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", ModelRequest(Prompt("", messages), (), 100))

    sent = heard.sent["messages"]
    assert isinstance(sent, list)
    asked, answered = sent[1]["content"][0], sent[2]["content"][0]
    assert asked["id"] == answered["tool_use_id"]
    assert asked["id"].removeprefix("call_").isalnum()
    assert [block["type"] for block in answered["content"]] == ["text", "image"]


def test_no_two_ids_become_the_same_one() -> None:
    (made,) = ids_sent("a.b")

    assert len(set(ids_sent("a.b", made))) == 2


def ids_sent(*calls: str) -> list[str]:
    (message,) = to_langchain(Prompt("", (step(*calls),)))
    assert isinstance(message, AIMessage)
    return [str(call["id"]) for call in message.tool_calls]


@pytest.mark.parametrize("name", ["openai", "azure_openai", "langsmith"])
def test_each_server_of_openais_wire_has_its_limits(name: str) -> None:
    assert PROVIDERS[name].has_openai_limits


Event = dict[str, object]
CALL: Event = {"index": 0, "id": "c1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
USAGE: Event = {"prompt_tokens": 12, "completion_tokens": 3}


def event(delta: object, finish: str | None = None) -> Event:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param({"choices": [{"index": 0, "finish_reason": None}]}, id="a choice without a delta"),
        pytest.param(event(None), id="a delta that is null"),
        pytest.param({"choices": None}, id="choices that are null"),
        pytest.param({"id": "c1"}, id="no choices"),
        pytest.param(event({"content": None}), id="content that is null"),
    ],
)
async def test_an_event_that_says_nothing_is_passed_over(empty: Event) -> None:
    heard = await hear(
        openai_stream(empty, event({"content": "Hel"}), empty, event({"content": "lo"}), event({}, "stop"))
    )

    assert heard.answer.text == "Hello"


async def test_usage_may_come_in_the_last_event_of_the_text_and_without_a_total() -> None:
    heard = await hear(openai_stream(event({"content": "Hello"}), {**event({}, "stop"), "usage": USAGE}))

    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (12, 3)


async def test_an_event_with_a_nameless_call_is_not_passed_over_with_its_other_calls() -> None:
    broken = event({"tool_calls": [CALL, {"index": 1, "id": "c2"}]})

    error = await refusal_of(openai_stream(event({"content": "Let me see."}), broken, event({}, "tool_calls")))

    assert type(error) is ModelUnavailable


MODEL = "anthropic:claude-test"
START = anthropic_start(input_tokens=5)
OPENED: dict[str, object] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
ENDED: dict[str, object] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}


def delta(fields: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": fields}


def text(value: object) -> dict[str, object]:
    return delta({"type": "text_delta", "text": value})


FAULTS = {
    "no event at all": Answer([], content_type=EVENT_STREAM),
    "html with 200": Answer(["<html><body>Log in</body></html>"], content_type="text/html"),
    "json with 200": Answer(['{"type": "message", "content": []}'], content_type=JSON),
    "no json in an event": Answer(["event: message_start\ndata: {not json\n\n"], content_type=EVENT_STREAM),
    "a number for an event": Answer(["event: content_block_delta\ndata: 7\n\n"], content_type=EVENT_STREAM),
    "broken utf-8": Answer([b"event: content_block_delta\ndata: \xff\xfe\n\n"], content_type=EVENT_STREAM),
    "deep nesting": Answer(["event: content_block_delta\ndata: " + "[" * 100_000 + "\n\n"], content_type=EVENT_STREAM),
    "a message that is text": anthropic_stream({"type": "message_start", "message": "hello"}),
    "a delta that is null": anthropic_stream(START, OPENED, delta(None)),
    "a delta that is a list": anthropic_stream(START, OPENED, delta(["ok"])),
    "a text that is a number": anthropic_stream(START, OPENED, text(7)),
    "a text that is null": anthropic_stream(START, OPENED, text(None)),
    "a text that is a mapping": anthropic_stream(START, OPENED, text({"a": 1})),
    "a block that is null": anthropic_stream(START, {**OPENED, "content_block": None}),
    "arguments of no call": anthropic_stream(START, delta({"type": "input_json_delta", "partial_json": 7})),
    "an unknown event": anthropic_stream(START, {"type": "surprise", "content": "ok"}),
    "a closed stream": anthropic_stream(START, OPENED, text("ok")),
    "a cut stream": Answer(anthropic_stream(START, OPENED, text("ok")).pieces, content_type=EVENT_STREAM, is_cut=True),
    "a stop reason that is a number": anthropic_stream(
        START, OPENED, text("ok"), {"type": "message_delta", "delta": {"stop_reason": 7}, "usage": {}}
    ),
    "an empty answer": anthropic_stream(START, OPENED, ENDED),
    "an error in the stream": anthropic_stream(START, {"type": "error", "error": {"type": "overloaded_error"}}),
    "an error that is text": anthropic_stream(START, {"type": "error", "error": "no"}),
    "a 500 of html": error_answer(500, "<html>down</html>"),
    "a 500 of a list": error_answer(500, [[[]]]),
    "a 200 of an error": Answer(['{"type": "error", "error": {"type": "api_error"}}'], content_type=JSON),
    "a redirect to itself": Answer([], status=307, headers=(("location", "file:///etc/passwd"),)),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_wire_is_a_named_error_and_the_next_call_is_answered(fault: str) -> None:
    registry = ModelRegistry(CONFIG)
    async with serve_raw(FAULTS[fault], ANTHROPIC_SAYS_OK) as server:
        model = registry.get(MODEL, server.url)
        with pytest.raises(ThroughlineError) as caught:
            [event async for event in model.stream(simple_request())]

        events = [event async for event in model.stream(simple_request())]
        await registry.close()

    assert isinstance(caught.value, ModelUnavailable | AnswerIncomplete | ModelInvalidRequest)
    assert caught.value.detail.startswith(MODEL)
    assert len(events) == 2


@pytest.mark.parametrize("role", ["user", "system", "robot", None, 7])
async def test_the_role_of_an_answer_is_not_asked_for(role: object) -> None:
    start = anthropic_start(input_tokens=5)
    message = start["message"]
    assert isinstance(message, dict)
    registry = ModelRegistry(CONFIG)
    answer = anthropic_stream({**start, "message": {**message, "role": role}}, OPENED, text("ok"), ENDED)
    async with serve_raw(answer) as server:
        events = [event async for event in registry.get(MODEL, server.url).stream(simple_request())]
        await registry.close()

    assert len(events) == 2


SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
REQUEST = replace(simple_request(), response_format=ResponseFormat(SCHEMA, "count", "A number.", strict=True))


async def test_servers_on_openais_wire_are_sent_the_schema() -> None:
    heard = await hear(OPENAI_SAYS_OK, request=REQUEST)
    plain = await hear(OPENAI_SAYS_OK)

    added = {name: value for name, value in heard.sent.items() if name not in plain.sent}
    described = {"name": "count", "description": "A number.", "strict": True, "schema": SCHEMA}
    assert added == {"response_format": {"type": "json_schema", "json_schema": described}}
    assert (heard.pieces, heard.answer.text) == (("ok",), "ok")


async def test_it_wins_over_one_of_the_agents_body_and_leaves_the_rest() -> None:
    given = ModelParameters(body={"response_format": {"type": "json_object"}, "top_k": 20})
    wanted = ResponseFormat(SCHEMA)
    request = replace(simple_request(), parameters=given, response_format=wanted)
    sent = (await hear(OPENAI_SAYS_OK, request=request)).sent

    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert sent["top_k"] == 20
    assert given.body["response_format"] == {"type": "json_object"}


async def test_anthropic_is_sent_none() -> None:
    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", REQUEST)
    plain = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test")

    assert heard.sent == plain.sent


def test_each_model_says_how_it_is_told() -> None:
    registry = ModelRegistry(CONFIG)
    support = {
        name: registry.get(name, "http://127.0.0.1:1/v1").format_support for name in ("openai:a", "anthropic:claude-b")
    }

    assert support == {"openai:a": FormatSupport.SCHEMA, "anthropic:claude-b": FormatSupport.INSTRUCTION}
    assert registry.get("offline").format_support is FormatSupport.NONE


def test_openais_newer_wire_format_has_it_under_text() -> None:
    described = {"name": "count", "schema": SCHEMA}
    body = {"response_format": {"type": "json_schema", "json_schema": described}, "top_k": 20}

    payload = moved_to_text({"input": [], "text": {"verbosity": "low"}, "extra_body": body})

    assert payload == {
        "input": [],
        "text": {"verbosity": "low", "format": {"type": "json_schema", **described}},
        "extra_body": {"top_k": 20},
    }
    assert moved_to_text({"input": []}) == {"input": []}
    assert "response_format" in body
