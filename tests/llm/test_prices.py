"""What a model call costs: by the operator's file, by the price list, and what is unknown."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.domain.errors import SettingInvalid
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, total_usage
from throughline.llm.prices import ModelPrice, Prices, read_prices
from throughline.llm.providers import parse_model_name

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
