"""A person's later sentence about what is kept already: found by its words, where no model named it.

So a value that was taken back is not shown as current when the model overlooks its correction.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from throughline.context.summaries.keep_lines import QUOTE_CHARACTERS, one_line
from throughline.context.summaries.pasted import without_pasted_blocks
from throughline.context.summaries.sentences import sentences_of
from throughline.context.summaries.subjects import subject_key, words_of
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import Message, Role, text_of

SCANNED_CHARACTERS = 4_000
"""So much of a message is read: what is longer is a paste."""

MOST_STATEMENTS = 20
"""So many facts one message changes."""

COVERED_SHARE = 2 / 3
"""A sentence speaks of a subject if it has so many of its words."""

CHANGE_WORDS = frozenset(
    word
    for words in (
        "not no longer instead rather moved changed actually correction now wait",
        "forget cancel cancelled canceled drop dropped off new",
        "nicht statt stattdessen doch jetzt nun vergiss verschoben geändert korrektur sondern abgesagt",
        "kein keine neue neuer",
        "ahora cambio cambió vez olvida ya mejor sino corrección cancelado cancelada anulado anulada nueva nuevo",
        "pas plus finalement plutôt maintenant oublie annulé annulée non nouvelle nouveau",
        "não agora invés esqueça mais invece ora più",
        "не теперь вместо больше отмена",
    )
    for word in words.split()
)
"""Words by which people take something back or change it, a line a language."""

ENDING_WORDS = frozenset((
    "forget",
    "cancel",
    "cancelled",
    "canceled",
    "dropped",
    "vergiss",
    "abgesagt",
    "olvida",
    "cancelado",
    "cancelada",
    "anulado",
    "anulada",
    "annulé",
))
"""Those that end something: with one of them a sentence is about the one word of a subject that it names."""

CHANGE_PARTS = (
    "不是",
    "改",
    "而是",
    "取消",
    "不再",
    "更正",
    "不去",
    "算了",
    "现在",
    "新的",
    "ではなく",
    "変更",
    "取り消",
)
"""The same where words are not spaced: parts of a sentence."""


def later_statements(facts: Sequence[KeptFact], messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the sentences of `messages` that change one of `facts`, each under the subject of what it changes."""
    known = _Known(facts)
    own = [message for message in messages if message.role is Role.USER]
    return tuple(statement for message in own for statement in islice(_of(message, known), MOST_STATEMENTS))


def _of(message: Message, known: "_Known") -> Iterator[KeptFact]:
    text = without_pasted_blocks(text_of(message.content)[:SCANNED_CHARACTERS])
    for start, stop in sentences_of(text):
        sentence = one_line(text[start:stop])
        if len(sentence) > QUOTE_CHARACTERS or sentence.endswith(("?", "？")):
            continue
        for fact in known.spoken_of(sentence, message.position):
            author = message.author or ""
            yield replace(fact, text=sentence, position=message.position, said_by=Role.USER, author=author)


def changes(sentence: str) -> bool:
    """Whether a sentence has a word by which people take something back or change it."""
    plain = sentence.casefold().replace("'", " ").replace("’", " ")
    words = {word.strip('.,;:!()"') for word in plain.split()}
    return bool(words & CHANGE_WORDS) or any(part in sentence for part in CHANGE_PARTS)


_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class _Known:
    """The current facts with a subject, found by its words."""

    by_word: dict[str, list[KeptFact]]

    def __init__(self, facts: Sequence[KeptFact]) -> None:
        self.by_word = defaultdict(list)
        for fact in facts:
            if fact.kind is not FactKind.INSTRUCTION and not fact.replaced_by:
                for word in subject_key(fact.subject):
                    self.by_word[word].append(fact)

    def spoken_of(self, sentence: str, position: int) -> Iterator[KeptFact]:
        """Yield the facts said before whose subject the sentence names, each once."""
        words = words_of(sentence)
        found = {fact for word in words for fact in self.by_word.get(word, ())}
        for fact in sorted(found, key=lambda fact: (fact.position, fact.text)):
            key = subject_key(fact.subject)
            is_named = len(key & words) >= COVERED_SHARE * len(key)
            has_value = bool(_values(fact.text) & _values(sentence))
            is_told = " " in fact.subject and fact.subject.casefold() in sentence.casefold()
            is_certain = len(key) > 1 or has_value or is_told or bool(words & ENDING_WORDS)
            is_change = changes(sentence) or (len(key) > 1 and _has_other_number(fact.text, sentence))
            if fact.position < position and fact.text != sentence and is_named and is_certain and is_change:
                yield fact


def _has_other_number(before: str, sentence: str) -> bool:
    """Whether both say a number, and not the same."""
    old, new = set(_NUMBER.findall(before)), set(_NUMBER.findall(sentence))
    return bool(old and new) and not new <= old


def _values(text: str) -> frozenset[str]:
    """Return the words of `text` that a value is made of: those with a digit, and names, which do not begin it."""
    words = [word.strip(".,;:!?()") for word in text.split()]
    names = (word for word in words[1:] if len(word) > 1 and word[:1].isupper())
    return frozenset((*names, *(word for word in words if any(map(str.isdigit, word)))))
