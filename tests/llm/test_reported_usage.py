"""The provider's count of a prompt: what we take from it, as it teaches us how to count."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.model_calls import hear, simple_request
from fakes.raw_http_server import Answer, anthropic_start, anthropic_stream, openai_stream
from throughline.domain.errors import AnswerIncomplete, SettingInvalid
from throughline.domain.message import Role
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage, Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, total_usage
from throughline.llm.assemble_answer import checked_usage
from throughline.llm.prices import ModelPrice, Prices, read_prices
from throughline.llm.providers import parse_model_name

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


async def test_anthropics_usage_is_told_again_and_not_in_parts() -> None:
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


TOKENS = Usage(input_tokens=1000, output_tokens=100, cached_tokens=400)


def cost(name: str, address: str = "", usage: Usage = TOKENS, prices: Prices | None = None) -> Decimal | None:
    return (prices or Prices()).cost(parse_model_name(name, address or None), address, usage)


def read(folder: Path, text: str) -> Prices:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return read_prices(path)


def test_listed_models_have_the_price_of_their_provider() -> None:
    # 600 tokens at 2.50 dollars a million, 400 from the cache at 1.25, and 100 of the answer at 10
    assert cost("openai:gpt-4o") == Decimal("0.003")
    assert cost("openai:gpt-4o", "https://api.openai.com/v1") == Decimal("0.003")
    # written to the cache: 1000 tokens at 3.75, and 100 of the answer at 15
    written = Usage(input_tokens=1000, output_tokens=100, cache_write_tokens=1000)
    assert cost("anthropic:claude-sonnet-4-5", usage=written) == Decimal("0.00525")


@pytest.mark.parametrize(
    ("name", "address", "usage"),
    [
        ("openai:no-such-model", "", TOKENS),
        ("ollama:llama3.2", "", TOKENS),
        ("openai:gpt-4o", "http://127.0.0.1:8001/v1", TOKENS),
        ("openai:gpt-4o", "", Usage(output_tokens=100)),
        ("openai:gpt-4o", "", Usage(input_tokens=1000)),
        ("openai:gpt-4o", "", Usage(input_tokens=10, output_tokens=100, cached_tokens=400)),
    ],
)
def test_an_unknown_price_or_usage_gives_no_cost(name: str, address: str, usage: Usage) -> None:
    assert cost(name, address, usage) is None


def test_own_prices_win_with_and_without_the_name_of_the_provider(tmp_path: Path) -> None:
    prices = read(
        tmp_path,
        """
openai:qwen3: {input: 1, cached_input: 0.1, output: 2}
llama3.2: {input: 0, output: 0}
gpt-4o: {input: 5, cache_write: 10, output: 0.5}
""",
    )

    assert cost("openai:qwen3", "http://127.0.0.1:8001/v1", prices=prices) == Decimal("0.00084")
    assert cost("ollama:llama3.2", prices=prices) == 0
    assert cost("openai:gpt-4o", usage=Usage(1000, 100, cache_write_tokens=200), prices=prices) == Decimal("0.00605")
    assert cost("openai:gpt-4o-mini", prices=prices) == cost("openai:gpt-4o-mini")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpt-4o: {input: -1, output: 2}", "gpt-4o.input: Input should be greater than or equal to 0, is -1"),
        ("gpt-4o: {output: 2}", "gpt-4o.input: Field required"),
        ("gpt-4o: {input: 1, output: 2, cached: 1}", "gpt-4o.cached: Extra inputs are not permitted"),
        ("gpt-4o: {input: .nan}", "gpt-4o.input: Input should be a finite number"),
        (
            "gpt-4o: {input: 1.0e-20, output: 2}",
            "gpt-4o.input: Decimal input should have no more than",
        ),
        ("gpt-4o: {input: 2024-99-99}", "cannot be read"),
        ("[" * 3_000, "cannot be read"),
        ("- 1", "the file: Input should be a valid dictionary"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_field_and_value(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingInvalid, match="PRICES_FILE") as caught:
        read(tmp_path, text)

    assert complaint in caught.value.detail


def test_a_missing_file_is_refused_and_an_empty_one_has_no_prices(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Prices()
    with pytest.raises(SettingInvalid, match="cannot be read"):
        read_prices(tmp_path / "nowhere.yaml")


@given(
    price=st.builds(
        ModelPrice, **{name: st.decimals(0, 100, places=2) for name in ("input", "output", "cached_input")}
    ),
    usage=st.builds(Usage, st.integers(0, 10**7), st.integers(0, 10**6), st.integers(0, 10**7)),
)
def test_a_cost_is_never_negative_and_grows_with_the_answer(price: ModelPrice, usage: Usage) -> None:
    least = price.cost(usage)
    more = price.cost(Usage(usage.input_tokens, (usage.output_tokens or 0) + 1, usage.cached_tokens))

    assert least is not None
    assert more is not None
    assert 0 <= least <= more


def test_a_total_with_an_unknown_cost_is_unknown_but_its_tokens_are_added() -> None:
    known, unknown = Usage(10, 2, cost_usd=Decimal("0.5")), Usage(5, None, reasoning_tokens=1)
    calls = [ModelCall("m", CallPurpose.ANSWER, usage) for usage in (known, known, unknown)]

    assert total_usage(calls[:2]) == Usage(20, 4, cost_usd=Decimal(1))
    assert total_usage(calls) == Usage(25, 4, reasoning_tokens=1)
    assert total_usage(()) == Usage()
