"""Which of a user's sentences hold from now on, and which are said once."""

import re
from itertools import chain

import pytest

from context.instruction_sentences import SAID_ONCE, STANDING
from fakes.growth import FACTOR, grows_linearly
from throughline.context.summaries.find_facts import PATTERNS, SENTENCE_CHARACTERS, is_standing_instruction
from throughline.context.summaries.readable_text import entries_of, one_of

LEAST_RECALL = 0.9
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


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_each_word_decides_about_a_sentence(name: str) -> None:
    """What this finds is to be removed, or a sentence that a user would write is to be added."""
    entries = entries_of(PATTERNS[name])

    assert [entry for entry in entries if not _is_used(name, entry, entries)] == []


def _is_used(name: str, entry: str, entries: list[str]) -> bool:
    """Return whether a sentence is judged wrongly without this entry of a list, and rightly with it."""
    others = {key: one_of(words) for key, words in PATTERNS.items()}
    others[name] = one_of(", ".join(other for other in entries if other != entry))
    pieces = [piece.strip() for piece in re.split(r"[…*]", entry)]
    return any(
        is_standing_instruction(sentence) == is_standing != is_standing_instruction(sentence, others)
        for is_standing, sentences in ((True, STANDING), (False, SAID_ONCE))
        for sentence in chain.from_iterable(sentences.values())
        if all(piece in sentence.lower().replace("’", "'") for piece in pieces)
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_judging_a_hostile_sentence_takes_time_in_proportion(text: str) -> None:
    assert grows_linearly(is_standing_instruction, lambda size: text[:size], len(text) // FACTOR)
