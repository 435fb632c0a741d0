"""Blocks of reasoning at the beginning of an answer, however it is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.growth import grows_linearly
from throughline.domain.reasoning import MOST_BLANKS, SplitText, ThinkBlockSplitter

WHOLE: list[tuple[str, SplitText]] = [
    ("Hello", SplitText(text="Hello")),
    ("<think>I see.</think>Hello", SplitText("I see.", "Hello")),
    ("\n <think>\nI see.\n</think>\n\nHello\n", SplitText("\nI see.\n", "Hello\n")),
    ("<thinking>a < b</thinking> Hello", SplitText("a < b", "Hello")),
    ("[THINK]I see.[/THINK]Hello", SplitText("I see.", "Hello")),
    ("<think>one</think>\n<think>two</think>\nHello", SplitText("onetwo", "Hello")),
    ("<think></think>\n\nHello", SplitText(text="Hello")),
    ("<think>It never ends. </thin", SplitText("It never ends. </thin")),
    ("<think>a</thinking>b</think>c", SplitText("a</thinking>b", "c")),
    ("Write <think>x</think> yourself.", SplitText(text="Write <think>x</think> yourself.")),
    ("```\n<think>x</think>\n```", SplitText(text="```\n<think>x</think>\n```")),
    ("<thinks>no tag</thinks>", SplitText(text="<thinks>no tag</thinks>")),
    ("<reasoning>asked for</reasoning>", SplitText(text="<reasoning>asked for</reasoning>")),
    ("I see.\n</think>\nHello", SplitText(text="I see.\n</think>\nHello")),
    ("  <thi", SplitText(text="  <thi")),
    ("   ", SplitText(text="   ")),
    (f"{' ' * (MOST_BLANKS + 1)}<think>x</think>", SplitText(text=f"{' ' * (MOST_BLANKS + 1)}<think>x</think>")),
]


def split(pieces: list[str]) -> SplitText:
    splitter = ThinkBlockSplitter()
    found = [*(splitter.feed(piece) for piece in pieces), splitter.flush()]
    return SplitText("".join(one.reasoning for one in found), "".join(one.text for one in found))


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_only_blocks_at_the_very_beginning_are_reasoning(text: str, expected: SplitText) -> None:
    assert split([text]) == expected


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_the_cut_into_pieces_does_not_matter(text: str, expected: SplitText) -> None:
    assert split(list(text)) == expected


@given(st.text(alphabet="<think>/ ab\n", max_size=40), st.integers(1, 7))
def test_any_text_is_split_the_same_in_pieces(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]

    assert split(pieces) == split([text])


def test_reasoning_is_returned_while_it_arrives() -> None:
    splitter = ThinkBlockSplitter()

    assert splitter.feed("<think>The first words, </").reasoning == "The first words, "
    assert splitter.feed("b> and more.</think>Yes").reasoning == "</b> and more."


def test_after_a_stop_a_tag_is_text() -> None:
    splitter = ThinkBlockSplitter()
    held = splitter.feed(" <thi")
    splitter.stop()

    assert (held, splitter.feed("nk>x</think>")) == (SplitText(), SplitText(text=" <think>x</think>"))


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["a", "<", "</think", "\n"])
def test_the_time_is_linear_in_the_pieces(piece: str) -> None:
    assert grows_linearly(lambda pieces: split(["<think>", *pieces]), lambda count: [piece] * count, 20_000)
