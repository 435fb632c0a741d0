"""Merging of kept facts: each fact is kept once, and of each subject the latest statement is current.

A later statement of a person or a tool replaces an earlier one, unless a person says that it adds to it ("too"). What
somebody says of themselves ("my phone") is replaced by their own statements only. Repetitions by the assistant change
nothing.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from throughline.context.summaries.change_words import adds, changes
from throughline.context.summaries.fact_subjects import is_same_subject, subject_key, words_of
from throughline.context.summaries.keep_lines import (
    SUBJECT_CHARACTERS,
    are_siblings,
    chance_numbers,
    has_chance_numbers_only,
    is_other_number,
)
from throughline.context.summaries.restatements import (
    CORRECTION_REACH,
    corrected_subject,
    could_replace,
    is_short_correction,
    keys_of,
    replaced_keys,
    restates,
)
from throughline.context.summaries.sentence_values import Key
from throughline.context.summaries.statements import is_about_speaker, worth
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact

MAX_FACTS = 600
"""Most facts kept for a session, about 60 kB stored; more than any summary has room to show."""

MAX_STATED = 300
"""Most facts that are only stated, in addition to the others."""

RESTATED, LEAST_SHARED = 0.5, 2
"""A sentence restates another if it shares at least half of its words, and at least two."""

MAX_INSTRUCTIONS = 200
"""Most standing instructions kept, in addition to the facts."""


def merge_kept_facts(old: Sequence[KeptFact], new: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return one list by position, in which each fact stands once per subject with the position of what replaced it.

    At most MAX_FACTS are kept, and MAX_STATED that are only stated: replaced facts are dropped first, then those with
    the least `worth`. Of the instructions the newest MAX_INSTRUCTIONS are kept.
    """
    current = _Current()
    for fact in _without_parts(_each_once((*old, *new))):
        current.add(fact)
    facts = [fact for fact in current.facts if fact.kind is not FactKind.INSTRUCTION]
    instructions = [fact for fact in current.facts if fact.kind is FactKind.INSTRUCTION]
    stated = [fact for fact in facts if fact.is_only_stated]
    others = [fact for fact in facts if not fact.is_only_stated]
    kept = {
        *islice(sorted(others, key=_worth, reverse=True), MAX_FACTS),
        *islice(sorted(stated, key=_worth, reverse=True), MAX_STATED),
        *instructions[-MAX_INSTRUCTIONS:],
    }
    return tuple(fact for fact in current.facts if fact in kept)


def without_subjects(facts: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return the facts, except instructions, without their subjects and marked as maybe outdated.

    It is used if a summary covers messages from which no facts were kept.
    """
    return tuple(
        fact if fact.kind is FactKind.INSTRUCTION else replace(fact, subject="", may_be_outdated=True) for fact in facts
    )


def _worth(fact: KeptFact) -> tuple[bool, float, int, int]:
    return not fact.replaced_by, *worth(fact)


def _each_once(facts: Iterable[KeptFact]) -> list[KeptFact]:
    """Return each text once per subject, by position.

    The position is the last one at which a person or tool said it, or else the first.
    """
    known: defaultdict[str, list[KeptFact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: fact.position):
        same = known[fact.text.casefold().replace("’", "'").rstrip(" .!…")]
        at = next((at for at, before in enumerate(same) if not _are_two_facts(before, fact)), None)
        if at is None:
            same.append(fact)
            continue
        is_repeated = fact.said_by is Role.ASSISTANT or fact.position == same[at].position
        same[at] = _merged(same[at], fact) if is_repeated else _merged(fact, same[at])
    return sorted((fact for same in known.values() for fact in same), key=lambda fact: fact.position)


def _are_two_facts(one: KeptFact, other: KeptFact) -> bool:
    """Return whether equal texts are two facts: two people say them of themselves, or they are about two things.

    "Monday" may be that of two meetings. Subjects are compared only if a model named both or neither: a rule names a
    subject by its key, a model by its meaning.
    """
    if _are_of_two_people(one, other) or (one.position != other.position and is_short_correction(one.text)):
        return True
    if FactKind.INSTRUCTION in {one.kind, other.kind} or bool(one.chosen) != bool(other.chosen):
        return False
    if not (one.subject and other.subject):
        return False
    return not is_same_subject(subject_key(one.subject), subject_key(other.subject))


def _are_of_two_people(one: KeptFact, other: KeptFact) -> bool:
    """Return whether two people speak, at least one of them of themselves."""
    if not (one.author and other.author) or one.author == other.author:
        return False
    return is_about_speaker(one.text) or is_about_speaker(other.text)


def _merged(fact: KeptFact, other: KeptFact) -> KeptFact:
    """Merge into `fact` what is known about `other`, which says the same or a part of it.

    The kind comes from the one that has a subject. The times that a model chose either are added up.
    """
    named = fact if fact.subject or not other.subject else other
    asked = [one.is_unjudged for one in (fact, other) if not one.is_only_stated]
    is_instruction = not named.subject and FactKind.INSTRUCTION in {fact.kind, other.kind}
    return replace(
        fact,
        kind=FactKind.INSTRUCTION if is_instruction else named.kind,
        subject=fact.subject or other.subject,
        chosen=fact.chosen + other.chosen,
        passed_over=max(fact.passed_over, other.passed_over),
        is_unjudged=bool(asked) and all(asked),
    )


def _without_parts(facts: Sequence[KeptFact]) -> list[KeptFact]:
    """Return the facts without those whose text is part of another fact's text from the same message."""
    by_position: defaultdict[int, list[KeptFact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: len(fact.text), reverse=True):
        at_position = by_position[fact.position]
        wholes = ((at, whole) for at, whole in enumerate(at_position) if fact.text in whole.text)
        index = next((at for at, whole in wholes if fact.text != whole.text or not _are_two_facts(whole, fact)), None)
        if index is None:
            at_position.append(fact)
        else:
            at_position[index] = _merged(at_position[index], fact)
    return [fact for position in sorted(by_position) for fact in by_position[position]]


@dataclass(slots=True)
class _Current:
    """Facts in the order in which they were stated.

    `by_word` is an index of the current facts by the words of their subject, or of their text if they have no subject;
    `with_subject` are those that have one. `by_key` is their index by what a restatement has in common with them, so
    that a merge does not compare all pairs.
    """

    facts: list[KeptFact] = field(default_factory=list)
    subjects: list[frozenset[str]] = field(default_factory=list)
    words: list[frozenset[str]] = field(default_factory=list)
    by_word: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    with_subject: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_key: defaultdict[Key, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, fact: KeptFact) -> None:
        """Add a fact that was stated after all others, and mark the facts it replaces.

        A fact of the assistant is skipped if a person or a tool has already stated something about its subject.
        """
        key, words = subject_key(fact.subject), words_of(fact.text)
        if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by:
            corrected = self._corrected_statement(fact)
            if corrected is not None:
                at, about = corrected
                self._end(at, fact.position)
                fact = replace(fact, subject=fact.subject or self.facts[at].subject or about[:SUBJECT_CHARACTERS])
                key = subject_key(fact.subject)
            earlier = [at for at in self._earlier(key, words, fact) if not _are_of_two_people(self.facts[at], fact)]
            if fact.said_by is Role.ASSISTANT and any(self._is_stated(at) for at in earlier):
                return
            for at in () if fact.said_by is Role.USER and adds(fact.text) else earlier:
                self._end(at, fact.position)
            for index, entries in self._entries(fact, key, words):
                for entry in entries:
                    index[entry].add(len(self.facts))
        self.facts.append(fact)
        self.subjects.append(key)
        self.words.append(words)

    def _earlier(self, key: frozenset[str], words: frozenset[str], fact: KeptFact) -> list[int]:
        """Return the indices of the current facts of the same thing, in their order."""
        found = {*self._of_subject(key, fact)}
        if fact.said_by is Role.USER:
            found |= {*self._of_text(key, words, fact), *self._of_values(fact)}
        return sorted(found)

    def _corrected_statement(self, fact: KeptFact) -> tuple[int, str] | None:
        """Return the index of the statement that the fact corrects in few words, with its subject; None without one.

        It is one of the same user's last message before, within CORRECTION_REACH messages.
        """
        if fact.said_by is not Role.USER or not is_short_correction(fact.text):
            return None
        last = 0
        for at in range(len(self.facts) - 1, -1, -1):
            before = self.facts[at]
            if before.replaced_by == fact.position or before.position < max(last, fact.position - CORRECTION_REACH):
                break
            is_theirs = before.said_by is Role.USER and before.author == fact.author
            if is_theirs and before.position < fact.position and before.kind is not FactKind.INSTRUCTION:
                last = before.position
                about = "" if before.replaced_by else corrected_subject(before.text, fact.text)
                if about:
                    return at, about
        return None

    def _of_subject(self, key: frozenset[str], fact: KeptFact) -> Iterator[int]:
        for at in {at for word in key for at in self.by_word[word]}:
            if self.facts[at].position < fact.position and is_same_subject(key, self.subjects[at]):
                yield at

    def _of_text(self, key: frozenset[str], words: frozenset[str], fact: KeptFact) -> Iterator[int]:
        """Yield the earlier facts that a person's statement concerns, whatever their subjects are called.

        One of the two must have a subject: other statements are compared by their values.
        """
        index = self.by_word if key else self.with_subject
        for at in {at for word in words for at in index[word]}:
            if self.facts[at].position >= fact.position or are_siblings(key, self.subjects[at]):
                continue
            is_same = self._is_other_number(at, key, fact) or self._shares_subject(at, key, words, fact)
            if is_same and could_replace(self.facts[at].text, fact.text):
                yield at

    def _of_values(self, fact: KeptFact) -> Iterator[int]:
        """Yield the earlier facts to whose statement a person gives another value, or whose value they end."""
        for at in {at for key in replaced_keys(fact.text) for at in self.by_key[key]}:
            if self.facts[at].position < fact.position and restates(self.facts[at].text, fact.text):
                yield at

    def _is_other_number(self, at: int, key: frozenset[str], fact: KeptFact) -> bool:
        """Return whether the fact repeats most of an earlier sentence with another number.

        One of the two must have a subject.
        """
        return bool(key or self.subjects[at]) and is_other_number(self.facts[at].text, fact.text)

    def _shares_subject(self, at: int, key: frozenset[str], words: frozenset[str], fact: KeptFact) -> bool:
        """Return whether a statement has an earlier fact's subject, or changes most of its text.

        If both have subjects, these must share a word. One of the two must have a subject.
        """
        subject, text, before = self.subjects[at], self.words[at], self.facts[at].text
        if not (key or subject) or (key and subject and not key & subject):
            return False
        if not (changes(fact.text) or key & subject):
            return False
        named, least = subject or key, max(LEAST_SHARED, RESTATED * len(text))
        if not (key and subject) and named <= words and (named <= text or subject):
            return not has_chance_numbers_only(before, fact.text)
        shared = text & words
        return len(shared) >= least and len(shared - chance_numbers(before, fact.text)) >= least

    def _is_stated(self, at: int) -> bool:
        return self.facts[at].said_by is not Role.ASSISTANT

    def _entries(
        self, fact: KeptFact, key: frozenset[str], words: frozenset[str]
    ) -> Iterator[tuple[dict[Any, set[int]], Iterable[Hashable]]]:
        """Yield each index with the entries under which it holds the fact."""
        yield self.by_word, key or words
        yield self.with_subject, key
        yield self.by_key, keys_of(fact.text)

    def _end(self, at: int, position: int) -> None:
        for index, entries in self._entries(self.facts[at], self.subjects[at], self.words[at]):
            for entry in entries:
                index[entry].discard(at)
        self.facts[at] = replace(self.facts[at], replaced_by=position)
