"""Which of a user's sentences hold from now on, and which are said once."""

import pytest

from context.instruction_sentences import SAID_ONCE, STANDING
from fakes.growth import FACTOR, grows_linearly
from throughline.context.summaries.standing_instructions import SENTENCE_CHARACTERS, is_standing_instruction

LEAST_RECALL = 0.7
MOST_FALSE = 0.15
HOSTILE = ("a" * 100_000, "please " * 20_000, "always " * 20_000, ", " * 50_000, "don't " * 20_000, "总是" * 50_000)


@pytest.mark.parametrize("language", STANDING)
def test_most_orders_that_last_are_recognised_in_each_language(language: str) -> None:
    missed = [sentence for sentence in STANDING[language] if not is_standing_instruction(sentence)]

    assert len(missed) <= (1 - LEAST_RECALL) * len(STANDING[language]), missed


@pytest.mark.parametrize("language", SAID_ONCE)
def test_requests_for_once_reports_and_questions_are_not(language: str) -> None:
    false = [sentence for sentence in SAID_ONCE[language] if is_standing_instruction(sentence)]

    assert len(false) <= MOST_FALSE * len(SAID_ONCE[language]), false


@pytest.mark.parametrize("text", ["", "   ", "?", "，", "please", "always", "Always " + "a" * SENTENCE_CHARACTERS])
def test_a_text_without_a_sentence_and_a_paste_are_no_instruction(text: str) -> None:
    assert not is_standing_instruction(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_judging_a_hostile_sentence_takes_time_in_proportion(text: str) -> None:
    assert grows_linearly(is_standing_instruction, lambda size: text[:size], len(text) // FACTOR)
