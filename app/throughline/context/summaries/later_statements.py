"""Later statements of a person about kept facts, found by their words if no model named them.

They keep a withdrawn value from being shown as current if the model overlooks its correction.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from throughline.context.summaries.fact_subjects import MOST_KNOWN, subject_key, words_of
from throughline.context.summaries.parse_keep_lines import QUOTE_CHARACTERS
from throughline.context.summaries.readable_text import own_sentences, words_in
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

SCANNED_CHARACTERS = 4_000
"""Number of characters of a message that are read; longer ones are pastes."""

MOST_STATEMENTS = 20
"""Most facts that one message changes."""

COVERED_SHARE = 2 / 3
"""Share of the words of a subject, or of an earlier sentence, that a sentence must contain to concern it."""

SAME_START, LEAST_START = 0.5, 3
"""A sentence restates a fact if it begins with the same words: half of the fact's words, and at least three."""

ENDING_WORDS = words_in(
    "forget cancel cancelled canceled dropped withdrawn revoked vergiss abgesagt gestrichen zurückgezogen "
    "olvida cancelado cancelada anulado anulada retirado retirada annulé retiré"
)
"""Words that say that something no longer holds, such as `cancelled`."""

CHANGE_WORDS = ENDING_WORDS | words_in("""
    not no longer instead rather moved moves changed changes postponed actually correction now wait drop off new
    nicht statt stattdessen doch jetzt nun verschoben verlegt geändert korrektur sondern kein keine neue neuer
    ahora cambio cambió vez ya mejor sino aplazado movido corrección nueva nuevo
    pas plus finalement plutôt maintenant oublie annulée non nouvelle nouveau
    não agora invés esqueça mais invece ora più
    не теперь вместо больше отмена
""")
"""Words with which people withdraw or change a statement, one line per language."""

NEGATIONS = words_in("no not kein keine keinen sin pas sem")
"""Words that end a subject if they stand directly before it: "no reminder"."""

CHANGE_PARTS = words_in("不是 改 而是 取消 不再 更正 不去 撤回 推迟 算了 现在 新的 ではなく 変更 取り消")
"""Words of change in scripts without spaces, as parts of a sentence."""

_FORGET = words_in("forget vergiss olvida oublie")
_NOT_FORGET = words_in("don t not nicht no pas n")
"""Words that negate a word of _FORGET if they stand before it: "don't forget"."""

_CORRECTING = CHANGE_WORDS - NEGATIONS - _NOT_FORGET
"""Words that correct something even in an addition. Negations do not: "I also do not eat nuts"."""

ADDING_WORDS = words_in("""
    also additionally auch ebenfalls ausserdem también además aussi également também anche тоже также
""")
"""Casefolded words with which people add to an earlier statement.

German "also" ("so") counts as well: showing two facts of which one holds is less harmful than showing a true one as
replaced.
"""

_PLACED_ADDING = re.compile(r"\b(?:too|as well)\s*(?:[,.;:!?)]|\Z)|也(?!许)|还(?![是没款钱书])|又", re.IGNORECASE)
"""Words of addition that mean something else in other positions: "too late", "might as well", 也许, 还是."""

_MOVED_ON = re.compile(
    r"\bmov(?:e|ed|ing) on(?: to (?:the next|the other|another|other|something)\b|(?= (?:with|and|since|already|now)\b)"
    r"|(?=[,.;:!?)]|\Z))",
    re.IGNORECASE,
)
"""Phrases such as "moved on to the next task", in which the word `moved` changes no earlier statement."""

_LEFT_NUMBER = re.compile(
    r"\b(?:from|not|no longer|instead of|rather than|nicht|statt|von|desde|pas) (?:(?:at|on|in|um|am|a) )?(\d+)\b",
    re.IGNORECASE,
)
"""A number that a sentence takes back: "moved from 3 to 5"."""

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


def are_siblings(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two subjects each have a word of their own and thus differ, like two people's phones."""
    return bool(one and other and one - other and other - one)


def later_statements(facts: Sequence[KeptFact], messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the sentences of `messages` that change one of `facts`, each under the subject of that fact."""
    known = _Known(facts)
    own = [message for message in messages if message.role is Role.USER]
    return tuple(statement for message in own for statement in islice(_of(message, known), MOST_STATEMENTS))


def _of(message: Message, known: "_Known") -> Iterator[KeptFact]:
    for sentence in own_sentences(text_of(message.content)[:SCANNED_CHARACTERS]):
        if len(sentence) > QUOTE_CHARACTERS or sentence.endswith(("?", "？")):
            continue
        for fact in known.spoken_of(sentence, message.position):
            author = message.author or ""
            yield replace(fact, text=sentence, position=message.position, said_by=Role.USER, author=author)


@lru_cache(MOST_KNOWN)
def changes(sentence: str) -> bool:
    """Return whether a sentence has a word with which people withdraw or change a statement."""
    words = _in_order(_MOVED_ON.sub(" ", sentence))
    return not CHANGE_WORDS.isdisjoint(words) or any(part in sentence for part in CHANGE_PARTS)


@lru_cache(MOST_KNOWN)
def adds(sentence: str) -> bool:
    """Return whether a sentence adds to an earlier statement, as "too" does, and corrects nothing. Linear time."""
    words = _in_order(sentence)
    is_added = not ADDING_WORDS.isdisjoint(words) or bool(_PLACED_ADDING.search(sentence))
    return is_added and _CORRECTING.isdisjoint(words) and not any(part in sentence for part in CHANGE_PARTS)


def is_other_number(before: str, sentence: str) -> bool:
    """Return whether a sentence has most of the words of the sentence `before`, and another number."""
    words = words_of(before)
    return _has_other_number(before, sentence) and len(words & words_of(sentence)) >= COVERED_SHARE * len(words)


def chance_numbers(before: str, sentence: str) -> frozenset[str]:
    """Return the numbers that both sentences have by chance: "in room 3" and "the next 3 tickets".

    The same word before a number in both is no chance, nor is a number that `sentence` takes back.
    """
    old, new = _numbers_after(before), _numbers_after(sentence)
    meant = {number for _, number in old & new} | set(_LEFT_NUMBER.findall(sentence))
    return frozenset({number for _, number in old} & {number for _, number in new} - meant)


def has_chance_numbers_only(before: str, sentence: str) -> bool:
    """Return whether the values of a sentence are nothing but numbers that it shares with `before` by chance."""
    values = _values(sentence)
    return bool(values) and values <= chance_numbers(before, sentence)


@dataclass(slots=True)
class _Known:
    """Index of the current facts: by the words of their subject, and by the position where a model named them."""

    by_word: dict[str, list[KeptFact]]
    named_at: dict[int, list[KeptFact]]

    def __init__(self, facts: Sequence[KeptFact]) -> None:
        self.by_word, self.named_at = defaultdict(list), defaultdict(list)
        for fact in facts:
            if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by:
                if fact.subject and fact.chosen:
                    self.named_at[fact.position].append(fact)
                for word in subject_key(fact.subject):
                    self.by_word[word].append(fact)

    def spoken_of(self, sentence: str, position: int) -> Iterator[KeptFact]:
        """Yield the earlier facts that the sentence changes, each once."""
        found = {fact for word in words_of(sentence) for fact in self.by_word.get(word, ())}
        for fact in sorted(found, key=lambda fact: (fact.position, fact.text)):
            is_news = fact.position < position and fact.text != sentence
            if is_news and _is_changed(fact, sentence) and not self._is_of_sibling(fact, sentence, position):
                yield fact

    def _is_of_sibling(self, fact: KeptFact, sentence: str, position: int) -> bool:
        """Return whether a model named the sentence only under subjects other than the fact's."""
        here = [one for one in self.named_at.get(position, ()) if one.text in sentence or sentence in one.text]
        return bool(here) and all(are_siblings(subject_key(one.subject), subject_key(fact.subject)) for one in here)


def _is_changed(fact: KeptFact, sentence: str) -> bool:
    """Return whether a sentence names the subject of a fact and says something different about it."""
    key, words = subject_key(fact.subject), words_of(sentence)
    if len(key & words) < (COVERED_SHARE if changes(sentence) else 1) * len(key):
        return False
    if _begins_alike(fact.text, sentence, key) or is_other_number(fact.text, sentence):
        return True
    is_named = " " in fact.subject and fact.subject.casefold() in sentence.casefold()
    values = _values(sentence) - chance_numbers(fact.text, sentence)
    is_certain = len(key) > 1 or is_named or bool(_values(fact.text) & values) or _is_ended(key, sentence)
    has_news = any(key.isdisjoint(words_of(value)) for value in values)
    is_statement = has_news or _is_ended(key, sentence) or (bool(_UNSPACED.search(sentence)) and "请" not in sentence)
    return is_certain and is_statement and changes(sentence)


def _is_ended(key: frozenset[str], sentence: str) -> bool:
    """Return whether a sentence ends a subject by a word like "cancelled" or by a negation before it.

    An example of the latter is "no reminder".
    """
    words = _in_order(sentence)
    if any(word in _FORGET and before in _NOT_FORGET for before, word in pairwise(words)):
        return False
    return not ENDING_WORDS.isdisjoint(words) or any(
        before in NEGATIONS and not key.isdisjoint(words_of(word)) for before, word in pairwise(words)
    )


def _begins_alike(before: str, sentence: str, key: frozenset[str]) -> bool:
    """Return whether both begin with the same words, including the subject, and continue with different values."""
    old, new = _WORD.findall(before), _WORD.findall(sentence)
    start = sum(
        1 for _ in takewhile(lambda pair: pair[0].casefold() == pair[1].casefold(), zip(old, new, strict=False))
    )
    if start < max(LEAST_START, SAME_START * len(old)) or not key <= words_of(" ".join(old[:start])):
        return False
    rests = old[start:], new[start:]
    return all(rest and _is_value(rest[0]) for rest in rests) and set(rests[0]).isdisjoint(rests[1])


def _in_order(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _numbers_after(text: str) -> frozenset[tuple[str, str]]:
    """Return the numbers of `text`, each with the word before it."""
    words = _in_order(text)
    return frozenset((before, word) for before, word in zip(("", *words), words, strict=False) if word.isdecimal())


def _has_other_number(before: str, sentence: str) -> bool:
    """Return whether both contain numbers, and the sentence has one that is not in `before`."""
    old, new = set(_NUMBER.findall(before)), set(_NUMBER.findall(sentence))
    return bool(old and new) and not new <= old


def _values(text: str) -> frozenset[str]:
    """Return the words of `text` that make up a value: words with a digit, and names, except at the beginning."""
    words = [word.strip(".,;:!?()") for word in text.split()]
    return frozenset(word for at, word in enumerate(words) if _is_value(word if at else word.casefold()))


def _is_value(word: str) -> bool:
    return (len(word) > 1 and word[0].isupper()) or any(map(str.isdigit, word))
