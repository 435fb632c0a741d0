"""Events of OpenAI-compatible servers that leave out what OpenAI always sends."""

import pytest

from fakes.model_calls import hear, refusal_of
from fakes.raw_http_server import openai_stream
from throughline.domain.errors import ModelUnavailable

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
