"""Shows where a message matches: the piece of its text that has most of what was asked for, and the places in it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from throughline.db.search.analyzer import Analyzer, Term

SNIPPET_CHARACTERS = 240
LEAD_CHARACTERS = 40
"""Shown before the first match, so that it does not stand alone."""

READ_CHARACTERS = 20_000
"""Of a longer text only the surroundings of places that look like a match are cut into terms: cutting 20,000
characters of words never seen takes 50 ms, and a search shows up to 50 messages."""

SHORT_STEM = 4
MOST_PLACES = 10
"""Places for each word of the query, the first ones."""

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text on one line, and the places (from, to) in it that match."""

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def snippet_of(analyzer: Analyzer, text: str, words: Collection[str]) -> Snippet:
    """Return the best piece of `text`; its beginning where no word of the query stands in it."""
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
    """Yield the terms of the text that are among the words, in their order."""
    for start, end in _pieces(text, words):
        for term in analyzer.terms(text[start:end]):
            found = replace(term, start=term.start + start, end=term.end + start)
            is_cut = (found.start == start > 0) or (found.end == end < len(text))
            if term.text in words and not is_cut:
                yield found


def _pieces(text: str, words: Collection[str]) -> list[tuple[int, int]]:
    """Return the pieces to read; the beginning of a long text in which no word stands as it is written."""
    if len(text) <= READ_CHARACTERS:
        return [(0, len(text))]
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter became two: places in the one are not places in the other
        lowered = text
    places = sorted(place for word in words for place in islice(_places(lowered, word), MOST_PLACES))
    return _around(places, len(text)) or [(0, READ_CHARACTERS)]


def _around(places: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return the pieces around places of a text of that length; those that touch are one."""
    pieces: list[tuple[int, int]] = []
    for place in places:
        start, end = max(place - SNIPPET_CHARACTERS, 0), min(place + 2 * SNIPPET_CHARACTERS, length)
        if pieces and start <= pieces[-1][1]:
            start = pieces.pop()[0]
        pieces.append((start, end))
    return pieces


def _places(lowered: str, word: str) -> Iterator[int]:
    """Yield where the word may stand: a stem may end in another letter than the words it is made from."""
    stem = word if len(word) < SHORT_STEM else word[:-1]
    place = lowered.find(stem)
    while place >= 0:
        yield place
        place = lowered.find(stem, place + 1)


def _best_place(matches: list[Term]) -> int:
    """Return where the piece with the most different terms begins; of several the first."""
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
    """Begin a little before the place, at a word."""
    if place <= LEAD_CHARACTERS:
        return 0
    space = text.find(" ", place - LEAD_CHARACTERS, place)
    return space + 1 if space >= 0 else place


def _on_one_line(text: str) -> str:
    """Line breaks and tabs become spaces, one for one, so that places stay where they are."""
    return "".join(" " if character.isspace() else character for character in text)


def _joined(places: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Places that overlap become one."""
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
