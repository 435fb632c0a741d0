"""What the index holds of a message: one number for each of its terms, and how that number is put together.

An entry is `offset << 8 | length << 4 | count`: the message's place behind the first of its block; how long the message
is, as a step on a scale (0 where length says nothing: the name of a file is as telling in a long text); and how often
the term stands in it (15 for any more).
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.search.analyzer import Analyzer, shortened
from throughline.domain.ids import SessionId

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
class LiveEntry:
    """One term of one message that is not indexed yet; `entry` is the number of a block that begins with it."""

    session_id: SessionId
    position: int
    term: str
    entry: int


@dataclass(frozen=True, slots=True)
class LiveEntries:
    """The wanted entries of messages that are not indexed yet, and how many messages and terms those have in all."""

    items: tuple[LiveEntry, ...] = ()
    message_count: int = 0
    term_count: int = 0


class BlockEntries:
    """The entries of one block, collected message by message, in the form in which they are stored.

    They are kept as texts: of a long block there are tens of thousands, and the garbage collector walks through lists.
    """

    def __init__(self, first: int) -> None:
        """Begin a block with the message at the position `first`."""
        self.first = first
        self.term_count = 0
        self._by_term: dict[str, str] = {}

    def add(self, analyzer: Analyzer, messages: Sequence[IndexedMessage]) -> None:
        """Add the entries of the messages."""
        for message in messages:
            numbers, total = numbers_of(analyzer, message)
            offset = (message.position - self.first) << 8
            self.term_count += total
            for term, number in numbers.items():
                before = self._by_term.get(term)
                entry = str(offset | number)
                self._by_term[term] = entry if before is None else f"{before},{entry}"

    def rows(self, most: int) -> list[tuple[list[str], list[str]]]:
        """Return the terms in their order with their entries as PostgreSQL's arrays, `most` at a time."""
        terms = sorted(self._by_term)
        batches = (terms[start : start + most] for start in range(0, len(terms), most))
        return [(batch, [f"{{{self._by_term[term]}}}" for term in batch]) for batch in batches]


def live_entries_of(analyzer: Analyzer, messages: Sequence[IndexedMessage], wanted: Collection[str]) -> LiveEntries:
    """Return the entries that the messages have for the wanted terms."""
    items: list[LiveEntry] = []
    term_count = 0
    for message in messages:
        numbers, total = numbers_of(analyzer, message)
        term_count += total
        place = (message.session_id, message.position)
        items += (LiveEntry(*place, term, numbers[term]) for term in wanted if term in numbers)
    return LiveEntries(tuple(items), len(messages), term_count)


def numbers_of(analyzer: Analyzer, message: IndexedMessage) -> tuple[dict[str, int], int]:
    """Return length and count of each term of the message as `length << 4 | count`, and how many terms its text has."""
    counts: Counter[str] = Counter()
    names: set[str] = set()
    for term in analyzer.terms(shortened(message.text)):
        counts[term.text] += 1
        if term.is_name:
            names.add(term.text)
    total = counts.total()
    step = length_step(total) << 4
    numbers = {term: (0 if term in names else step) | min(count, MOST) for term, count in counts.items()}
    return {**numbers, **dict.fromkeys(_beside(analyzer, message), 1)}, total


def length_step(terms: int) -> int:
    """Return the step on the scale of lengths, 1 to 15."""
    return min(1 + round(math.log2(max(terms, 1)) / LENGTH_STEP), MOST)


def author_terms(analyzer: Analyzer, name: str) -> set[str]:
    """Return the terms by which an author is found."""
    return {f"{AUTHOR}{term.text}" for term in analyzer.terms(name)}


def _beside(analyzer: Analyzer, message: IndexedMessage) -> set[str]:
    names = author_terms(analyzer, message.author) if message.author else set()
    return {*names, f"{DAY}{message.created_at.date().isoformat()}"}
