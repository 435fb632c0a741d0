"""Index entries: one number for each term of a message, and its encoding.

A block is a run of successive messages of a session that are indexed together.
An entry is `offset << 9 | answer << 8 | length << 4 | count`.
`offset` is the message's distance from the first of its block.
`answer` is 1 for an answer of the assistant, not for a step with tool calls.
`length` is the message's length on a logarithmic scale; 0 for code-like names, which are as relevant in a long text.
`count` is how often the term occurs, at most 15.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.search.analyzer import Analyzer, shortened
from throughline.domain.basic_types import SessionId

OFFSET_SHIFT, ANSWER_SHIFT, LENGTH_SHIFT = 9, 8, 4
ENTRY_VERSION = 2
"""Must change whenever the encoding of an entry changes; blocks with entries of another version are indexed again."""

LENGTH_STEP = 0.9
"""Step of the length scale, as a base-2 logarithm: 14 steps reach 6,000 terms."""

MOST = 15
"""Largest length and count: both have four bits."""

AUTHOR, DAY = "@", "#"
"""Prefixes of the terms for a message's author and for its day; no term of a text begins with them."""

AFTER_PAUSE = "^"
"""The term of each message that begins a new episode, because a long pause precedes it."""


@dataclass(frozen=True, slots=True)
class IndexedMessage:
    """The indexed data of a message: its text with tool calls, its author, its time.

    `is_after_pause`: a long pause came before it. `is_answer`: it is an answer of the assistant without tool calls.
    """

    session_id: SessionId
    position: int
    text: str
    author: str | None
    created_at: datetime
    is_after_pause: bool = False
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """A term of a message that is not in the index yet; `entry` is encoded as if its block began with the message."""

    session_id: SessionId
    position: int
    term: str
    entry: int


@dataclass(frozen=True, slots=True)
class LiveEntries:
    """The wanted entries of unindexed messages, and the numbers of these messages and of all their terms."""

    items: tuple[LiveEntry, ...] = ()
    message_count: int = 0
    term_count: int = 0


class BlockEntries:
    """The index entries of one block of messages in their stored form, collected message by message.

    They are kept as strings: a long block has tens of thousands, and the garbage collector would visit lists.
    """

    def __init__(self, first: int) -> None:
        """Start a block whose first message has the position `first`."""
        self.first = first
        self.term_count = 0
        self._by_term: dict[str, str] = {}

    def add(self, analyzer: Analyzer, message: IndexedMessage) -> None:
        numbers, total = numbers_of(analyzer, message)
        offset = (message.position - self.first) << OFFSET_SHIFT
        self.term_count += total
        for term, number in numbers.items():
            before = self._by_term.get(term)
            entry = str(offset | number)
            self._by_term[term] = entry if before is None else f"{before},{entry}"

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the sorted terms, each with its entries as a PostgreSQL array."""
        return ((term, f"{{{self._by_term[term]}}}") for term in sorted(self._by_term))


def live_entries_of(analyzer: Analyzer, messages: Sequence[IndexedMessage], wanted: Collection[str]) -> LiveEntries:
    """Return the messages' entries for the wanted terms, with the numbers of the messages and of all their terms."""
    items: list[LiveEntry] = []
    term_count = 0
    for message in messages:
        numbers, total = numbers_of(analyzer, message)
        term_count += total
        place = (message.session_id, message.position)
        items += (LiveEntry(*place, term, numbers[term]) for term in wanted if term in numbers)
    return LiveEntries(tuple(items), len(messages), term_count)


def numbers_of(analyzer: Analyzer, message: IndexedMessage) -> tuple[dict[str, int], int]:
    """Return `answer << 8 | length << 4 | count` for each term of the message, and the number of terms of its text.

    Terms for author, day and pause are included, each with length 0 and count 1.
    """
    counts: Counter[str] = Counter()
    names: set[str] = set()
    for term in analyzer.terms(shortened(message.text)):
        counts[term.text] += 1
        if term.is_name:
            names.add(term.text)
    total = counts.total()
    step, answer = length_step(total) << LENGTH_SHIFT, message.is_answer << ANSWER_SHIFT
    numbers = {term: answer | (0 if term in names else step) | min(count, MOST) for term, count in counts.items()}
    return {**numbers, **dict.fromkeys(_beside(analyzer, message), answer | 1)}, total


def length_step(terms: int) -> int:
    """Return the step from 1 to 15 that a text of this many terms has on the logarithmic length scale."""
    return min(1 + round(math.log2(max(terms, 1)) / LENGTH_STEP), MOST)


def author_terms(analyzer: Analyzer, name: str) -> set[str]:
    """Return the terms by which messages of an author are found."""
    return {f"{AUTHOR}{term.text}" for term in analyzer.terms(name)}


def _beside(analyzer: Analyzer, message: IndexedMessage) -> set[str]:
    names = author_terms(analyzer, message.author) if message.author else set()
    pause = {AFTER_PAUSE} if message.is_after_pause else set()
    return {*names, *pause, f"{DAY}{message.created_at.date().isoformat()}"}
