"""Which later statement may have changed or ended a fact, where it is not certain that it replaced it.

The reader of a summary is told the position of that statement, and decides.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from throughline.context.summaries.change_words import adds, changes, may_end
from throughline.context.summaries.fact_subjects import subject_key, words_of
from throughline.context.summaries.restatements import (
    CORRECTION_REACH,
    begins_like_correction,
    corrected_subject,
    has_other_value,
)
from throughline.context.summaries.sentence_values import read_sentence
from throughline.domain.message import Role
from throughline.domain.summary import KeptFact

RARE = 3
"""A word in more messages than this does not identify the subject of a statement."""

MOST_COMPARED_WORDS = 15
"""Most words between spaces of a later statement, and of a fact whose values are compared with its.

Longer ones state several things.
"""

LEAST_SHARED = 2
"""Least words that what the assistant repeats has in common with a user's statement."""

_UNIT = re.compile(r"(?<=\d) ([^\W\d_]{1,20})")


def later_changes(facts: Sequence[KeptFact], all_facts: Iterable[KeptFact]) -> dict[KeptFact, int]:
    """Return for each of `facts` the position of a person's last statement that may have changed it; 0 for none.

    Such a statement is one of `all_facts`. It has a rare word in common with the fact, and says a change, an end or
    another value of the same kind; or it follows soon and begins like a correction.
    """
    stated = [fact for fact in all_facts if fact.said_by is Role.USER and not fact.replaced_by]
    having: defaultdict[str, list[KeptFact]] = defaultdict(list)
    for fact in stated:
        for word in words_of(fact.text):
            having[word].append(fact)
    rare = {word: found for word, found in having.items() if len({fact.position for fact in found}) <= RARE}
    corrections: defaultdict[int, list[KeptFact]] = defaultdict(list)
    for fact in stated:
        if begins_like_correction(fact.text):
            corrections[fact.position].append(fact)

    def last_change(fact: KeptFact) -> int:
        words = subject_key(fact.subject) | words_of(fact.text)
        later = {other for word in words for other in rare.get(word, ()) if other.position > fact.position}
        short = (other for other in later if _is_short(other))
        found = (other.position for other in short if _may_change(fact, other, words & rare.keys()))
        soon = (fact.position + distance for distance in range(1, CORRECTION_REACH + 1))
        corrected = (at for at in soon if any(_may_be_corrected(fact, other) for other in corrections.get(at, ())))
        return max((*found, *corrected), default=0)

    return {fact: last_change(fact) for fact in facts}


def without_outdated_repetitions(facts: Iterable[KeptFact], all_facts: Iterable[KeptFact]) -> list[KeptFact]:
    """Return `facts` without what the assistant repeated of a statement before this was replaced: "175, noted"."""
    replaced: defaultdict[tuple[str, ...], list[KeptFact]] = defaultdict(list)
    for fact in all_facts:
        if fact.replaced_by and fact.said_by is not Role.ASSISTANT:
            for value in read_sentence(fact.text).held:
                replaced[value].append(fact)
    return [
        fact
        for fact in facts
        if fact.said_by is not Role.ASSISTANT
        or not any(_repeats(fact, old) for value in read_sentence(fact.text).held for old in replaced.get(value, ()))
    ]


def _repeats(fact: KeptFact, old: KeptFact) -> bool:
    """Return whether the assistant's fact has no value but those of a statement that was replaced after it.

    Half of its other words, and at least two, are those of the statement.
    """
    words = _plain_words(fact)
    is_between = old.position < fact.position < old.replaced_by
    is_same = len(words & _plain_words(old)) >= max(LEAST_SHARED, len(words) / 2)
    return is_between and is_same and read_sentence(fact.text).held <= read_sentence(old.text).held


def _may_change(fact: KeptFact, other: KeptFact, rare_words: frozenset[str]) -> bool:
    """Return whether a later statement may have changed a fact; `rare_words` are those of its text and subject."""
    shared = words_of(other.text) & rare_words
    if _is_tracked(fact) and shared & subject_key(fact.subject) and changes(other.text):
        return True
    if fact.said_by is Role.ASSISTANT:
        return False
    if shared & words_of(fact.text) and may_end(other.text):
        return True
    if shared.isdisjoint(_plain_words(fact) & _plain_words(other)) or _are_siblings(fact.text, other.text):
        return False
    if not _is_short(fact) or adds(other.text):
        return False
    return has_other_value(fact.text, other.text)


def _is_short(fact: KeptFact) -> bool:
    return len(fact.text.split()) <= MOST_COMPARED_WORDS


def _is_tracked(fact: KeptFact) -> bool:
    """Return whether a later statement about the same subject would have replaced the fact."""
    return fact.said_by is Role.TOOL or (fact.said_by is Role.USER and bool(fact.subject))


def _plain_words(fact: KeptFact) -> frozenset[str]:
    """Return the words of a fact that are no values and no units of one."""
    return words_of(" ".join(read_sentence(fact.text).words - {*_UNIT.findall(fact.text.casefold())}))


def _are_siblings(one: str, other: str) -> bool:
    """Return whether two sentences "… is 3" differ in one word before it: "Ida's phone", "Ben's phone"."""
    first, second = read_sentence(one), read_sentence(other)
    are_alike = all(any(value.is_after_copula for value in read.values) for read in (first, second))
    return are_alike and len(first.words - second.words) == len(second.words - first.words) == 1


def _may_be_corrected(fact: KeptFact, other: KeptFact) -> bool:
    """Return whether the correction gives another value to what the same person stated."""
    if fact.said_by is not Role.USER or fact.author != other.author:
        return False
    return has_other_value(fact.text, other.text) or bool(corrected_subject(fact.text, other.text))
