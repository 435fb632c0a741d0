"""How a chat follows its session if others have said something in between, in other interfaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughline.chat_protocols.continue_chat import Alignment, SessionTexts, align

TEXTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


def aligned(request: str, session: str, *, is_all: bool = True, has_whole_chat: bool = False) -> Alignment:
    """Align texts of one letter each. Capital letters of the session were said elsewhere."""
    elsewhere = frozenset(index for index, text in enumerate(session) if text.isupper())
    return align([*request], SessionTexts(tuple(session.lower()), is_all, elsewhere), has_whole_chat=has_whole_chat)


@pytest.mark.parametrize(
    ("request_texts", "session", "alignment"),
    [
        ("a", "X", Alignment.CONTINUES),
        ("a", "XY", Alignment.CONTINUES),
        ("ab", "aX", Alignment.CONTINUES),
        ("abc", "aXbYZ", Alignment.CONTINUES),
        ("abb", "abX", Alignment.CONTINUES),
        ("ab", "abX", Alignment.REPEATS),
        ("ac", "abX", Alignment.BRANCHES),
        ("ba", "X", Alignment.BRANCHES),
    ],
)
def test_what_was_said_elsewhere_may_be_missing(request_texts: str, session: str, alignment: Alignment) -> None:
    assert aligned(request_texts, session) is alignment


def test_a_chat_whose_texts_are_older_than_all_that_are_compared_continues() -> None:
    assert aligned("ab", "X" * 20, is_all=False) is Alignment.CONTINUES


@given(TEXTS, TEXTS)
def test_a_new_message_after_turns_of_others_continues(own: list[str], others: list[str]) -> None:
    session = "".join(own) + "".join(others).upper()

    assert aligned("".join(own) + "z", session) is Alignment.CONTINUES
