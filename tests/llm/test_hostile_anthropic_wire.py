"""What no well-behaved server of Anthropic sends: each fault is a named error, and the next call is answered."""

import pytest

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, simple_request
from fakes.raw_http_server import EVENT_STREAM, JSON, Answer, anthropic_start, anthropic_stream, error_answer, serve_raw
from throughline.domain.errors import AnswerIncomplete, ModelInvalidRequest, ModelUnavailable, ThroughlineError
from throughline.llm.registry import ModelRegistry

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
