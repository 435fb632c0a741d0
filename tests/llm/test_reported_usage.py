"""The provider's count of a prompt: what we take from it, as it teaches us how to count."""

import pytest

from fakes.model_calls import hear, simple_request
from fakes.raw_http_server import Answer, anthropic_start, anthropic_stream, openai_stream
from throughline.domain.errors import AnswerIncomplete
from throughline.domain.message import Role
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage, Usage
from throughline.llm.usage_check import checked_usage

ANTHROPIC = "anthropic:claude-test"
ENGLISH = "The harbour master kept a ledger of every ship that came in after dark. " * 100
CHINESE = "港口负责人把每一艘天黑以后进港的船都记在账簿里。" * 100
BASE64 = "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0" * 100
BLANKS = "x" + " " * 20_000


def anthropic_answer(*usages: dict[str, object]) -> Answer:
    deltas: list[dict[str, object]] = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn" if index + 1 == len(usages) else None, "stop_sequence": None},
            "usage": usage,
        }
        for index, usage in enumerate(usages)
    ]
    return anthropic_stream(
        anthropic_start(input_tokens=5),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        *deltas,
        {"type": "message_stop"},
    )


@pytest.mark.parametrize(
    ("usage", "prompt_tokens"),
    [
        ({"input_tokens": 100, "output_tokens": 4}, 100),
        (
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 9000,
                "cache_creation_input_tokens": 400,
                "output_tokens": 4,
            },
            9500,
        ),
        (
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 9000,
                "cache_creation_input_tokens": 400,
                "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 4,
            },
            9500,
        ),
        ({"output_tokens": 4}, None),
    ],
)
async def test_anthropics_input_tokens_are_the_whole_prompt_cached_or_not(
    usage: dict[str, object], prompt_tokens: int | None
) -> None:
    heard = await hear(anthropic_answer(usage), ANTHROPIC)

    assert (heard.answer.usage.input_tokens, heard.answer.usage.output_tokens) == (prompt_tokens, 4)


async def test_anthropics_usage_is_told_anew_and_not_in_parts() -> None:
    heard = await hear(
        anthropic_answer({"input_tokens": 100, "output_tokens": 2}, {"input_tokens": 100, "output_tokens": 4}),
        ANTHROPIC,
    )

    assert heard.answer.usage == Usage(input_tokens=100, output_tokens=4)


async def test_openais_cached_tokens_are_part_of_the_prompt() -> None:
    finish = {"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": 9500,
        "completion_tokens": 4,
        "total_tokens": 9504,
        "prompt_tokens_details": {"cached_tokens": 9000},
    }

    heard = await hear(openai_stream({"choices": [finish]}, {"choices": [], "usage": usage}))

    assert heard.answer.usage == Usage(input_tokens=9500, output_tokens=4, cached_tokens=9000)


async def test_a_count_of_a_prompt_that_was_silently_shortened_is_not_learned_from() -> None:
    finish = {"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 500, "completion_tokens": 4, "total_tokens": 504}
    request = ModelRequest(Prompt("", (PromptMessage(Role.USER, ENGLISH),)), (), 100)
    answer = openai_stream({"choices": [finish]}, {"choices": [], "usage": usage})

    heard = await hear(answer, request=request)
    whole = await hear(answer, request=simple_request())

    assert heard.answer.usage == Usage(input_tokens=None, output_tokens=4)
    assert whole.answer.usage == Usage(input_tokens=500, output_tokens=4)


@pytest.mark.parametrize(
    ("text", "tokens", "is_kept"),
    [
        (ENGLISH, 1500, True),
        (ENGLISH, 400, False),
        (CHINESE, 800, True),
        (CHINESE, 1, False),
        (BASE64, 2000, True),
        (BLANKS, 150, True),
        ("", 3, True),
    ],
)
def test_only_counts_that_no_tokenizer_could_reach_are_left_out(text: str, tokens: int, *, is_kept: bool) -> None:
    prompt = Prompt("", (PromptMessage(Role.USER, text),))

    checked = checked_usage(Usage(tokens, 1), prompt, "model")

    assert (checked.input_tokens == tokens) is is_kept


@pytest.mark.parametrize(("details", "cached"), [({"cached_tokens": 0}, 0), (None, None)])
async def test_the_cached_tokens_that_openai_reports_are_kept(
    details: dict[str, int] | None, cached: int | None
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104, "prompt_tokens_details": details}
    said = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}

    heard = await hear(openai_stream(said, {"choices": [], "usage": usage}))

    assert heard.answer.usage == Usage(100, 4, cached)


async def test_the_cached_tokens_that_anthropic_reports_are_kept() -> None:
    usage: dict[str, object] = {"input_tokens": 100, "cache_read_input_tokens": 9000, "output_tokens": 4}

    heard = await hear(anthropic_answer(usage), ANTHROPIC)

    assert heard.answer.usage == Usage(9100, 4, 9000)


@pytest.mark.parametrize(
    "written",
    [
        {"cache_creation_input_tokens": 400},
        {
            "cache_creation_input_tokens": 400,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300},
        },
    ],
)
async def test_the_tokens_that_anthropic_wrote_to_its_cache_are_kept(written: dict[str, object]) -> None:
    heard = await hear(anthropic_answer({"input_tokens": 100, "output_tokens": 4, **written}), ANTHROPIC)

    assert heard.answer.usage.input_tokens == 500
    assert heard.answer.usage.cache_write_tokens == 400


async def test_the_reasoning_tokens_and_the_cost_of_a_call_are_kept() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 40,
        "total_tokens": 140,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    said = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}

    heard = await hear(openai_stream(said, {"choices": [], "usage": usage}))

    assert heard.answer.usage == Usage(100, 40, reasoning_tokens=30)


async def test_the_name_of_the_answering_model_is_kept() -> None:
    said = {"model": "small-2", "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    nameless = {"choices": said["choices"]}

    assert (await hear(openai_stream(said))).answer.model == "small-2"
    assert (await hear(anthropic_answer({"output_tokens": 4}), ANTHROPIC)).answer.model == "claude-test"
    assert (await hear(openai_stream(nameless))).answer.model == ""


async def test_the_usage_of_an_answer_that_is_empty_is_kept_with_the_error() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}
    said = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}

    with pytest.raises(AnswerIncomplete) as caught:
        await hear(openai_stream(said, {"choices": [], "usage": usage}))

    assert caught.value.usage == Usage(100, 40)
