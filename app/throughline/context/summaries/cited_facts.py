"""Facts from citations: if a line of a summary cites one message alone, the sentence it restates is also kept verbatim.

A model that writes "Ana must not have penicillin [#12]" shows that message 12 matters, even if it does not name it
below `KEEP:`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.later_statements import SCANNED_CHARACTERS
from throughline.context.summaries.parse_keep_lines import QUOTE_CHARACTERS, KeepLine, read_keep_lines
from throughline.context.summaries.readable_text import own_sentences
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import FactKind, KeptFact

MOST_CITED = 60
"""Most facts taken from one summary."""

LEAST_SHARED = 0.5
"""Share of words that line and sentence must have in common, relative to the shorter of the two."""

_SINGLE = re.compile(r"\[#(\d{1,9})\]")
_HEADING = re.compile(r"#{1,4}\s+(\w+)")
_KINDS = {"decisions": FactKind.DECISION, "open": FactKind.OPEN_QUESTION, "intent": FactKind.PREFERENCE}
"""Sections of a summary and the kind of their facts; facts in other sections, or other languages, are values."""


def cited_facts(text: str, lines: str, messages: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the restated sentence for each line of a summary that cites exactly one user message.

    It is the sentence of that message which shares most words with the line; none if that is less than LEAST_SHARED.
    `lines` are the lines below `KEEP:`. If one of them names the same sentence, it determines the fact's kind and
    subject.
    """
    named = {line.position: line for line in read_keep_lines(lines)}
    said = {message.position: _Said(message) for message in messages if message.role is Role.USER}
    kind = FactKind.VALUE
    found: list[KeptFact] = []
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            kind = _KINDS.get(heading[1].casefold(), FactKind.VALUE)
        places = {int(number) for number in _SINGLE.findall(line)}
        if len(places) == 1 and (read := said.get(places.pop())) is not None:
            found.extend(_of(line, read, kind, named.get(read.message.position)))
        if len(found) >= MOST_CITED:
            break
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class _Said:
    """A message whose sentences are found once for all lines that cite it."""

    message: Message

    @cached_property
    def sentences(self) -> list[str]:
        own = own_sentences(text_of(self.message.content)[:SCANNED_CHARACTERS])
        return [sentence for sentence in own if len(sentence) <= QUOTE_CHARACTERS]


def _of(line: str, said: _Said, kind: FactKind, named: KeepLine | None) -> Iterator[KeptFact]:
    line_words, message = words_of(_SINGLE.sub("", line)), said.message
    shared = {sentence: _shared(line_words, words_of(sentence)) for sentence in said.sentences}
    best = max(shared, key=lambda sentence: shared[sentence], default="")
    if best and shared[best] >= LEAST_SHARED:
        is_about = named is not None and _shared(words_of(named.quote), words_of(best)) >= LEAST_SHARED
        kind, subject = (named.kind, named.subject) if named is not None and is_about else (kind, "")
        yield KeptFact(kind, best, message.position, Role.USER, subject, message.author or "", chosen=1)


def _shared(line_words: frozenset[str], words: frozenset[str]) -> float:
    return len(line_words & words) / max(min(len(line_words), len(words)), 1)
