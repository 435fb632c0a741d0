"""What the index holds of a message: one number for each of its terms, and how that number is put together.

An entry is `offset << 8 | length << 4 | count`: the message's place behind the first of its block; how long the message
is, as a step on a scale (0 where length says nothing: the name of a file is as telling in a long text); and how often
the term stands in it (15 for any more).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.db.search.analyzer import Analyzer, shortened
from app.domain.ids import SessionId

LENGTH_STEP = 0.9
"""The logarithm (base 2) of the ratio between two steps of length: 14 of them reach 6,000 terms."""

MOST = 15
AUTHOR, DAY = "@", "#"
"""What the terms for a message's author and for the day it was written begin with; no term of a text does."""


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """What is indexed of a message: its text with the calls in it, who wrote it, and when."""

    session_id: SessionId
    position: int
    text: str
    author: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """One term of one message."""

    position: int
    term: str
    length: int
    count: int

    def packed(self, first: int) -> int:
        """Return the entry as it is stored in a block that begins with `first`."""
        return (self.position - first) << 8 | self.length << 4 | self.count


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of some messages of one session, and how many messages and terms they are made of."""

    session_id: SessionId
    items: tuple[Entry, ...]
    message_count: int
    term_count: int


def entries_of(analyzer: Analyzer, messages: Sequence[IndexedMessage]) -> Entries:
    """Return the entries of messages of one session."""
    items: list[Entry] = []
    total = 0
    for message in messages:
        terms = list(analyzer.terms(shortened(message.text)))
        names = {term.text for term in terms if term.is_name}
        step = length_step(len(terms))
        total += len(terms)
        for term, count in Counter(term.text for term in terms).items():
            items.append(Entry(message.position, term, 0 if term in names else step, min(count, MOST)))
        items += (Entry(message.position, term, 0, 1) for term in _beside(analyzer, message))
    return Entries(messages[0].session_id, tuple(items), len(messages), total)


def length_step(terms: int) -> int:
    """Return the step on the scale of lengths, 1 to 15."""
    return min(1 + round(math.log2(max(terms, 1)) / LENGTH_STEP), MOST)


def author_terms(analyzer: Analyzer, name: str) -> set[str]:
    """Return the terms by which an author is found."""
    return {f"{AUTHOR}{term.text}" for term in analyzer.terms(name)}


def _beside(analyzer: Analyzer, message: IndexedMessage) -> set[str]:
    names = author_terms(analyzer, message.author) if message.author else set()
    return {*names, f"{DAY}{message.created_at.date().isoformat()}"}
