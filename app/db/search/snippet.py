"""Shows where a message matches: the piece of its text that has most of what was asked for, and the places in it."""

from collections.abc import Collection
from dataclasses import dataclass

from app.db.search.analyzer import MAX_TEXT_CHARACTERS, Analyzer, Term

SNIPPET_CHARACTERS = 240
LEAD_CHARACTERS = 40
"""Shown before the first match, so that it does not stand alone."""

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text on one line, and the places (from, to) in it that match."""

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def snippet_of(analyzer: Analyzer, text: str, words: Collection[str]) -> Snippet:
    """Return the best piece of `text`; its beginning where no word of the query stands in it."""
    matches = [term for term in analyzer.terms(text[:MAX_TEXT_CHARACTERS]) if term.text in words]
    start = _start(text, _best_place(matches))
    end = min(len(text), start + SNIPPET_CHARACTERS)
    head, tail = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    shift = len(head) - start
    places = sorted({
        (term.start + shift, term.end + shift) for term in matches if start <= term.start < term.end <= end
    })
    return Snippet(f"{head}{_on_one_line(text[start:end])}{tail}", _joined(places))


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
