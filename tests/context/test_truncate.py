"""Cutting texts in their middle."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context.strategies import COUNTS, PIECES, by_bytes, by_length
from throughline.context.measure import count_message
from throughline.context.view.shrink_message import cut_to_bytes, shrink_message, truncate_middle
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import PromptMessage
from throughline.llm.counters import make_counter


@given(
    st.lists(st.builds(lambda piece, times: piece * times, st.sampled_from(PIECES), st.integers(1, 300)), max_size=5),
    st.integers(0, 500),
    st.sampled_from(COUNTS),
)
def test_the_result_never_takes_more_than_allowed(
    pieces: list[str], max_tokens: int, count: Callable[[str], int]
) -> None:
    text = "".join(pieces)

    cut = truncate_middle(text, max_tokens, count)

    assert cut == "" or count(cut) <= max_tokens
    assert cut == text or len(text) == 0 or count(text) > max_tokens or len(text) > 32 * max_tokens


@given(st.text(max_size=300), st.integers(1, 200))
def test_a_byte_cap_holds_for_any_text(text: str, max_bytes: int) -> None:
    cut = cut_to_bytes(text, max_bytes)

    head, _, tail = cut.partition("\n[… ")
    assert cut == text or len((head + tail.partition("…]\n")[2]).encode()) <= max_bytes


def test_head_and_tail_stay_and_the_mark_says_how_much_is_gone() -> None:
    text = "A" * 1000 + "B" * 1000

    cut = truncate_middle(text, 100, by_length, " of message #7")

    head, mark, tail = cut.split("\n")
    assert set(head) == {"A"}
    assert set(tail) == {"B"}
    assert mark == f"[… {2000 - len(head) - len(tail):,} characters of message #7 left out …]"
    assert by_length(cut) > 80


def test_ten_megabytes_are_cut_with_a_few_small_counts() -> None:
    seen: list[int] = []

    def spy(text: str) -> int:
        seen.append(len(text))
        return by_bytes(text)

    truncate_middle("汉字 abc " * 1_500_000, 1000, spy)

    assert len(seen) <= 10
    assert sum(seen) < 100_000


@pytest.mark.parametrize("text", ["word " * 20_000, "汉" * 30_000, " " * 60_000, "aGVsbG8K" * 9000])
def test_a_real_tokenizer_agrees(text: str) -> None:
    count = make_counter("tiktoken").count

    cut = truncate_middle(text, 500, count)

    assert 350 < count(cut) <= 500


@pytest.mark.parametrize("max_tokens", [50, 80, 100])
def test_arguments_that_are_no_json_are_cut_by_what_is_sent_for_them(max_tokens: int) -> None:
    message = PromptMessage(Role.ASSISTANT, "", (ToolCall("abcd", "search", '"' * 200),))

    shrunk = shrink_message(message, max_tokens, by_length)

    assert count_message(message, by_length) > 100
    assert count_message(shrunk, by_length) <= max_tokens
