"""The piece of a long text that a search shows."""

import pytest

from throughline.db.search.analyzer import Analyzer
from throughline.db.search.repository import READ_CHARACTERS, snippet_of

ANALYZER = Analyzer("english")
FILLER = "filler " * (2 * READ_CHARACTERS // len("filler "))


def highlighted(text: str, *words: str) -> list[str]:
    shown = snippet_of(ANALYZER, text, {ANALYZER.word(word) for word in words})
    return [shown.text[start:end] for start, end in shown.highlights]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Happy anchors weigh.", ["happiness", "anchor"]),
        ("See app/db/rows.py.", ["rows"]),
        ("0xDEADBEEF", ["0xdeadbeef"]),
    ],
)
def test_a_match_deep_in_a_long_text_is_shown(said: str, asked: list[str]) -> None:
    assert highlighted(f"{FILLER}{said} {FILLER}", *asked) == highlighted(said, *asked) != []


def test_a_word_is_no_match_because_a_piece_of_the_text_ends_in_it() -> None:
    """The piece around the match begins inside of a long word, whose rest looks like another match."""
    text = f"{FILLER}{'anchor-' * 100} vault {FILLER}"

    assert "vault" in highlighted(text, "vault", "hor")
    assert "hor" not in highlighted(text, "vault", "hor")


def test_of_a_text_that_matches_nowhere_the_beginning_is_shown() -> None:
    assert snippet_of(ANALYZER, FILLER, {"anchor"}).text.startswith("filler filler")
