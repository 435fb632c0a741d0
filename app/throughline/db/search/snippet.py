"""Snippets: the part of a message's text with the most query words, and the matching ranges in it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from throughline.db.search.analyzer import Analyzer, Term

SNIPPET_CHARACTERS = 240
LEAD_CHARACTERS = 40
"""Characters shown before the first match, as context."""

READ_CHARACTERS = 20_000
"""Text length up to which a whole text is tokenized; of a longer one only the text around likely matches.

Tokenizing 20,000 characters of unseen words takes 50 ms, and a search shows up to 50 messages.
"""

SHORT_STEM = 4
MAX_MATCHES = 10
"""Most likely matches examined for each query word, from the beginning of the text."""

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A one-line excerpt of a text, and the ranges of characters (from, to; `to` excluded) in it that match."""

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def snippet_of(analyzer: Analyzer, text: str, words: Collection[str]) -> Snippet:
    """Return the excerpt of `text` with the most different `words`; its beginning if none occurs in it.

    `words` are the analyzed terms of a query.
    """
    matches = list(_matches(analyzer, text, words))
    start = _start(text, _best_place(matches))
    end = min(len(text), start + SNIPPET_CHARACTERS)
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    shift = len(head) - start
    places = sorted({
        (term.start + shift, term.end + shift) for term in matches if start <= term.start < term.end <= end
    })
    return Snippet(f"{head}{_on_one_line(text[start:end])}{tail}", _joined(places))


def _matches(analyzer: Analyzer, text: str, words: Collection[str]) -> Iterator[Term]:
    """Yield the text's terms that are among the words, in order."""
    for start, end in _pieces(text, words):
        for term in analyzer.terms(text[start:end]):
            found = replace(term, start=term.start + start, end=term.end + start)
            is_cut = (found.start == start > 0) or (found.end == end < len(text))
            if term.text in words and not is_cut:
                yield found


def _pieces(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Return the ranges to tokenize; for a long text without a literal match, its beginning."""
    if len(text) <= READ_CHARACTERS:
        return [(0, len(text))]
    lowered = text.lower()
    if len(lowered) != len(text):  # lower() changed the length, so positions would not match
        lowered = text
    places = sorted(place for word in words for place in islice(_places(lowered, word), MAX_MATCHES))
    return _around(places, len(text)) or [(0, READ_CHARACTERS)]


def _around(places: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return ranges around the positions in a text of this length; overlapping ranges are merged."""
    pieces: list[tuple[int, int]] = []
    for place in places:
        start, end = max(place - SNIPPET_CHARACTERS, 0), min(place + 2 * SNIPPET_CHARACTERS, length)
        if pieces and start <= pieces[-1][1]:
            start = pieces.pop()[0]
        pieces.append((start, end))
    return pieces


def _places(lowered: str, word: str) -> Iterator[int]:
    """Yield positions where the word may occur, ignoring its last letter, in which a stem can differ from its words."""
    stem = word if len(word) < SHORT_STEM else word[:-1]
    place = lowered.find(stem)
    while place >= 0:
        yield place
        place = lowered.find(stem, place + 1)


def _best_place(matches: list[Term]) -> int:
    """Return the start of the excerpt with the most different terms; among equals the first."""
    best, place, first = 0, 0, 0
    for last, term in enumerate(matches):
        while term.end - matches[first].start > SNIPPET_CHARACTERS - LEAD_CHARACTERS:
            first += 1
            if first > last:
                break
        different = len({match.text for match in matches[first : last + 1]})
        if different > best:
            best, place = different, matches[first].start
    return place


def _start(text: str, place: int) -> int:
    """Return an excerpt start shortly before the position, at a word boundary."""
    if place <= LEAD_CHARACTERS:
        return 0
    space = text.find(" ", place - LEAD_CHARACTERS, place)
    return space + 1 if space >= 0 else place


def _on_one_line(text: str) -> str:
    """Replace each whitespace character by a space, so that ranges stay valid."""
    return "".join(" " if character.isspace() else character for character in text)


def _joined(places: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ranges with overlapping ones merged."""
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
