"""Which later statement may have changed or ended a fact, where it is not certain that it replaced it.

The reader of a summary is told the position of that statement, and decides.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from throughline.context.summaries.change_words import adds, changes, may_end
from throughline.context.summaries.fact_subjects import subject_key, words_of
from throughline.context.summaries.restatements import corrected_subject, has_other_value, may_correct
from throughline.context.summaries.sentence_values import read_sentence
from throughline.domain.message import Role
from throughline.domain.summary import KeptFact

RARE = 3
"""A word in more messages than this does not identify the subject of a statement."""

CORRECTION_REACH = 4
"""Messages within which a correction in few words may follow what it corrects."""

COMPARED_WORDS = 15
"""Most words of statements that are compared: longer ones state several things."""

_UNIT = re.compile(r"(?<=\d) ([^\W\d_]{1,20})")


def later_changes(facts: Sequence[KeptFact], all_facts: Iterable[KeptFact]) -> dict[KeptFact, int]:
    """Return for each fact the position of the last statement of a person that may have changed it; 0 for none.

    Such a statement is one of `all_facts`. It has a rare word in common with the fact, and says a change, an end or
    another value of the same kind; or it follows closely and begins like a correction.
    """
    stated = [fact for fact in all_facts if fact.said_by is Role.USER and not fact.replaced_by]
    having: defaultdict[str, list[KeptFact]] = defaultdict(list)
    for fact in stated:
        for word in words_of(fact.text):
            having[word].append(fact)
    rare = {word: found for word, found in having.items() if len({fact.position for fact in found}) <= RARE}
    corrections = [fact for fact in stated if _is_short(fact) and may_correct(fact.text)]

    def last_change(fact: KeptFact) -> int:
        words = subject_key(fact.subject) | words_of(fact.text)
        later = {other for word in words for other in rare.get(word, ()) if other.position > fact.position}
        found = (other.position for other in later if _may_change(fact, other, words & rare.keys()))
        near = (other.position for other in corrections if _may_be_corrected(fact, other))
        return max((*found, *near), default=0)

    return {fact: last_change(fact) if _is_short(fact) else 0 for fact in facts}


def without_echoes(facts: Iterable[KeptFact], all_facts: Iterable[KeptFact]) -> list[KeptFact]:
    """Return `facts` without what the assistant said after users whose statement is replaced: "175, noted"."""
    replaced = [fact for fact in all_facts if fact.replaced_by and fact.said_by is not Role.ASSISTANT]
    return [
        fact for fact in facts if fact.said_by is not Role.ASSISTANT or not any(_echoes(fact, old) for old in replaced)
    ]


def _echoes(fact: KeptFact, old: KeptFact) -> bool:
    values = read_sentence(fact.text).held
    return bool(values) and values <= read_sentence(old.text).held and bool(_plain_words(fact) & _plain_words(old))


def _is_short(fact: KeptFact) -> bool:
    return len(fact.text.split()) <= COMPARED_WORDS


def _may_change(fact: KeptFact, other: KeptFact, rare: frozenset[str]) -> bool:
    """Return whether a later statement may have changed a fact that has these rare words."""
    shared = words_of(other.text) & rare
    if not _is_short(other):
        return False
    if _is_tracked(fact) and shared & subject_key(fact.subject) and changes(other.text):
        return True
    if fact.said_by is Role.ASSISTANT:
        return False
    if shared & words_of(fact.text) and may_end(other.text):
        return True
    if shared.isdisjoint(_plain_words(fact) & _plain_words(other)) or _are_siblings(fact.text, other.text):
        return False
    return has_other_value(fact.text, other.text) and not adds(other.text)


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
    if fact.said_by is not Role.USER or not fact.position < other.position <= fact.position + CORRECTION_REACH:
        return False
    return has_other_value(fact.text, other.text) or bool(corrected_subject(fact.text, other.text))
