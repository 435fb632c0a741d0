"""Which sentences ask for something: for turns and for the offline model by the same words."""

import pytest

from throughline.context.quoted_history import question_of
from throughline.llm.offline_answers import question_in


@pytest.mark.parametrize(
    "sentence",
    [
        "What is the code?",
        "remind me of the plan",
        "Please find the code of the boat yard.",
        "So could you list the members",
        "Tell us what we decided.",
        "Tell me my allergies",
        "Look up the gate code",
        "Quote the first message.",
        "Nenne mir den Code.",
        "Wessen Boot liegt im Hafen",
        "Qué dijo Ana del puerto",
        "Quand part le bateau",
    ],
)
def test_who_asks_is_understood_by_turns_and_by_the_offline_model(sentence: str) -> None:
    assert (question_of(sentence), question_in(sentence)) == (sentence, sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The show begins at eight.",
        "Tell the team that I moved.",
        "Show every change as a unified diff.",
        "Remember that I owe 5 euros.",
        "Comment on this text.",
        "Please and thank you",
        "ok",
    ],
)
def test_who_states_something_asks_for_nothing(sentence: str) -> None:
    assert (question_of(sentence), question_in(sentence)) == ("", "")
