"""Kept facts as they grow: each once, and of each subject what was said last is current.

A person's or a tool's later statement replaces an earlier one, unless a person says that it adds to it ("too"); what
the assistant says again moves nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from throughline.context.summaries.fact_subjects import is_same_subject, subject_key, words_of
from throughline.context.summaries.later_statements import adds, are_siblings, changes, is_other_number
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Role

MAX_FACTS = 600
"""Facts kept for a session, about 60 kB as stored; more than any summary has room to show."""

SAID_ANEW, LEAST_SHARED = 0.5, 2
"""A sentence says anew what shares half of its words with it, and two at least."""

MAX_INSTRUCTIONS = 200
"""Standing instructions kept, on top of the facts."""


def merge_kept_facts(old: Sequence[KeptFact], new: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return one list by position, where each stands once for a subject and knows what replaced it.

    Bounded by `MAX_FACTS` and `MAX_INSTRUCTIONS`: replaced ones go first, then the lowest scores, then the
    oldest.
    """
    current = _Current()
    for fact in _without_parts(_each_once((*old, *new))):
        current.add(fact)
    facts = [fact for fact in current.facts if fact.kind is not FactKind.INSTRUCTION]
    instructions = [fact for fact in current.facts if fact.kind is FactKind.INSTRUCTION]
    kept = {*islice(sorted(facts, key=_worth, reverse=True), MAX_FACTS), *instructions[-MAX_INSTRUCTIONS:]}
    return tuple(fact for fact in current.facts if fact in kept)


def unfollowed(facts: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return the facts where messages were summarised that none was kept of: nobody knows whether they still hold."""
    return tuple(fact if fact.kind is FactKind.INSTRUCTION else replace(fact, subject="") for fact in facts)


def _worth(fact: KeptFact) -> tuple[bool, float, int]:
    return not fact.replaced_by, fact.score, fact.position


def _each_once(facts: Iterable[KeptFact]) -> list[KeptFact]:
    """Return each text once for a subject, by position: where a person or tool said it last, else where it was new."""
    known: defaultdict[str, list[KeptFact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: fact.position):
        same = known[fact.text.casefold()]
        at = next((at for at, before in enumerate(same) if not _are_two(before, fact)), None)
        if at is None:
            same.append(fact)
            continue
        is_repeated = fact.said_by is Role.ASSISTANT or fact.position == same[at].position
        same[at] = _one_of(same[at], fact) if is_repeated else _one_of(fact, same[at])
    return sorted((fact for same in known.values() for fact in same), key=lambda fact: fact.position)


def _are_two(one: KeptFact, other: KeptFact) -> bool:
    """Whether one text is kept of two subjects, as "Monday" of two meetings.

    Both were named or none was: a rule calls by its key what a model calls by its meaning.
    """
    if FactKind.INSTRUCTION in {one.kind, other.kind} or bool(one.chosen) != bool(other.chosen):
        return False
    if not (one.subject and other.subject):
        return False
    return not is_same_subject(subject_key(one.subject), subject_key(other.subject))


def _one_of(fact: KeptFact, other: KeptFact) -> KeptFact:
    """Merge into `fact` what is known of the `other`, which says the same or a part of it.

    The kind is that of the one that has a subject. All choices of a model for either count.
    """
    named = fact if fact.subject or not other.subject else other
    is_instruction = not named.subject and FactKind.INSTRUCTION in {fact.kind, other.kind}
    return replace(
        fact,
        kind=FactKind.INSTRUCTION if is_instruction else named.kind,
        subject=fact.subject or other.subject,
        chosen=fact.chosen + other.chosen,
        passed_over=max(fact.passed_over, other.passed_over),
        is_unjudged=fact.is_unjudged and other.is_unjudged,
    )


def _without_parts(facts: Sequence[KeptFact]) -> list[KeptFact]:
    """Of two texts of one message that hold each other one is enough: the longer."""
    by_position: defaultdict[int, list[KeptFact]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: len(fact.text), reverse=True):
        at_position = by_position[fact.position]
        wholes = ((at, whole) for at, whole in enumerate(at_position) if fact.text in whole.text)
        index = next((at for at, whole in wholes if fact.text != whole.text or not _are_two(whole, fact)), None)
        if index is None:
            at_position.append(fact)
        else:
            at_position[index] = _one_of(at_position[index], fact)
    return [fact for position in sorted(by_position) for fact in by_position[position]]


@dataclass(slots=True)
class _Current:
    """Facts in the order they were said.

    `by_word` finds those that are current by the words of their subject, or of their text where they have none.
    """

    facts: list[KeptFact] = field(default_factory=list)
    subjects: list[frozenset[str]] = field(default_factory=list)
    words: list[frozenset[str]] = field(default_factory=list)
    by_word: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, fact: KeptFact) -> None:
        """Add a fact that was said after all others and mark those it replaces; leave out what only repeats one."""
        key, words = subject_key(fact.subject), words_of(fact.text)
        if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by:
            earlier = sorted({*self._of_subject(key, fact), *self._of_text(key, words, fact)})
            if fact.said_by is Role.ASSISTANT and any(self._is_stated(at) for at in earlier):
                return
            for at in () if fact.said_by is Role.USER and adds(fact.text) else earlier:
                self._end(at, fact.position)
            for word in key or words:
                self.by_word[word].add(len(self.facts))
        self.facts.append(fact)
        self.subjects.append(key)
        self.words.append(words)

    def _of_subject(self, key: frozenset[str], fact: KeptFact) -> list[int]:
        found = {at for word in key for at in self.by_word[word]}
        return [
            at
            for at in sorted(found)
            if self.facts[at].position < fact.position and is_same_subject(key, self.subjects[at])
        ]

    def _of_text(self, key: frozenset[str], words: frozenset[str], fact: KeptFact) -> list[int]:
        """Return those that a person's statement says anew, whatever its subject is called."""
        found = {at for word in words for at in self.by_word[word]} if fact.said_by is Role.USER else set()
        is_change = changes(fact.text)
        earlier = (
            at for at in found if self.facts[at].position < fact.position and not are_siblings(key, self.subjects[at])
        )
        return [
            at
            for at in earlier
            if self._is_other_number(at, key, fact) or self._is_said_anew(at, key, words, is_change=is_change)
        ]

    def _is_other_number(self, at: int, key: frozenset[str], fact: KeptFact) -> bool:
        """Two sentences of one form alone say nothing of it: one of them must have a subject."""
        return bool(key or self.subjects[at]) and is_other_number(self.facts[at].text, fact.text)

    def _is_said_anew(self, at: int, key: frozenset[str], words: frozenset[str], *, is_change: bool) -> bool:
        """Whether a statement has the subject of an earlier one, or changes most of it; two subjects must be akin."""
        subject, text = self.subjects[at], self.words[at]
        if (key and subject and not key & subject) or not (is_change or key & subject):
            return False
        named = subject or key
        is_named = not (key and subject) and named <= words and (named <= text or bool(subject))
        return is_named or len(text & words) >= max(LEAST_SHARED, SAID_ANEW * len(text))

    def _is_stated(self, at: int) -> bool:
        return self.facts[at].said_by is not Role.ASSISTANT

    def _end(self, at: int, position: int) -> None:
        for word in self.subjects[at] or self.words[at]:
            self.by_word[word].discard(at)
        self.facts[at] = replace(self.facts[at], replaced_by=position)
