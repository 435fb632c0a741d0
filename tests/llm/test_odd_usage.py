"""Usage that is no number: the answer beside it counts all the same."""

import pytest

from fakes.model_calls import hear
from fakes.raw_http_server import anthropic_start, anthropic_stream, openai_stream

ODD = ["12", "NaN", 1.5, True, [12], {"tokens": 12}]
STOP: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
SAID: dict[str, object] = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}]}


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("choices", [[], [STOP]], ids=["after the answer", "with its last piece"])
async def test_odd_usage_of_openai_is_ignored(odd: object, choices: list[object]) -> None:
    usage = {"prompt_tokens": odd, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": odd}}

    heard = await hear(openai_stream(SAID, {"choices": [STOP]}, {"choices": choices, "usage": usage}))

    assert heard.answer.text == "ok"
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (None, 3)


@pytest.mark.parametrize("odd", ["many", 12, ["x"]], ids=str)
async def test_usage_of_openai_that_is_no_mapping_is_ignored(odd: object) -> None:
    heard = await hear(openai_stream(SAID, {"choices": [STOP], "usage": odd}))

    assert (heard.answer.text, heard.answer.usage.input_tokens) == ("ok", None)


@pytest.mark.parametrize("odd", ["NaN", 1.5, [12], {"tokens": 12}, {"ephemeral_5m_input_tokens": "many"}], ids=str)
async def test_odd_usage_of_anthropic_is_ignored(odd: object) -> None:
    usage = {"input_tokens": odd, "output_tokens": 3, "cache_read_input_tokens": odd, "cache_creation": odd}
    answer = anthropic_stream(
        anthropic_start(input_tokens=5),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    )

    heard = await hear(answer, "anthropic:claude-test")

    assert heard.answer.text == "ok"
    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (None, 3)
