"""Where the text of an answer is cut into messages."""

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fakes.markdown_texts import TEXTS
from throughline.slack.markdown.convert import to_slack
from throughline.slack.markdown.cut_text import closing, cut_before, is_in_fence, part_of

LINES = st.lists(st.text(st.sampled_from("ab `~>|[]()"), max_size=12), max_size=30)


def test_a_cut_code_block_is_closed_and_opened_again() -> None:
    text = "Look\n```py\none\ntwo\n```\ndone"
    at = text.index("two")

    assert part_of(text, 0, at) == "Look\n```py\none\n```"
    assert part_of(text, at, len(text)) == "```py\ntwo\n```\ndone"
    assert closing(text, at) == "```"
    assert not is_in_fence(text, len(text))


def test_a_cut_block_is_opened_again_with_a_fence_of_its_length() -> None:
    text = "````\n```\none\n```\ntwo\n````"
    at = text.index("two")

    assert part_of(text, 0, at) == "````\n```\none\n```\n````"
    assert part_of(text, at, len(text)) == "````\ntwo\n````"


def test_a_cut_code_span_is_closed_and_opened_again() -> None:
    text = "See ``a `b` @channel`` there."
    at = text.index("@")

    assert part_of(text, 0, at) == "See ``a `b` ``"
    assert part_of(text, at, len(text)) == "``@channel`` there."


def test_a_line_that_begins_like_a_fence_is_cut_as_what_it_is() -> None:
    text = "```" + "x" * 100 + "```"

    assert part_of(text, 0, 50) == "```" + "x" * 47 + "```"
    assert part_of(text, 50, len(text)) == "```" + "x" * 53 + "```"


def test_long_text_is_cut_at_paragraphs_then_lines_then_words() -> None:
    assert cut_before("a" * 60 + "\n\n" + "b" * 60, 0, 100) == 62
    assert cut_before("a" * 60 + "\n" + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 60 + " " + "b" * 60, 0, 100) == 61
    assert cut_before("a" * 120, 0, 100) == 100
    assert cut_before("short", 0, 100) == 5


def test_no_cut_tears_the_line_that_opens_a_block_or_leaves_it_behind() -> None:
    text = "a" * 60 + "\n```python\n" + "b" * 60

    assert cut_before(text, 0, 65) == 61
    assert cut_before(text, 0, 71) == 61


@given(TEXTS, st.integers(110, 160))
@example("word " * 7 + "![pic](http://x.io/p.png) " * 2 + "```x = 1```](javascript:", 110)  # cut in a code span
def test_pieces_hold_all_of_the_text_in_order(text: str, limit: int) -> None:
    shown = to_slack(text)

    assert "".join(_own_text(shown, piece) for piece in _pieces(shown, limit)) == shown


@given(LINES, st.integers(40, 80))
def test_code_in_pieces_is_the_code_of_the_whole(lines: list[str], limit: int) -> None:
    written = "\n".join(["Look:", "", "`````py", *lines, "`````", "", "done"])
    shown = to_slack(written)

    pieces = "".join(
        token.content
        for piece in _pieces(shown, limit)
        for token in MarkdownIt().parse(piece.shown)
        if token.type == "fence"
    )

    assert pieces == "".join(f"{line}\n" for line in lines)


class Piece(NamedTuple):
    """A message and where its own text begins and ends in the whole."""

    shown: str
    start: int
    end: int


def _pieces(shown: str, limit: int) -> list[Piece]:
    at, pieces = 0, list[Piece]()
    while at < len(shown):
        end = cut_before(shown, at, limit)
        assert at < end <= at + limit
        pieces.append(Piece(part_of(shown, at, end), at, end))
        at = end
    return pieces


def _own_text(whole: str, piece: Piece) -> str:
    """Return what a piece holds of the text: without the marks that end code where it is cut, and begin it again."""
    marks = closing(whole, piece.start).strip()
    assert piece.shown.startswith(marks)
    ended = piece.shown.removesuffix(closing(whole, piece.end))
    return ended.partition("\n")[2] if is_in_fence(whole, piece.start) else ended.removeprefix(marks)
