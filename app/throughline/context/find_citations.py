"""Search of a text for citations such as `[#12]`, `[#12-#40]` and `[#12 in session 0198…]`.

Summaries and answers use this form, and so do the heads of messages that recall tools quote. Code is not searched: a
text that explains citations cites nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from throughline.context.beside_quotation import QuotationSearch
from throughline.context.citation_form import BRACKET, NEXT, PLACE
from throughline.context.markdown.code_spans import spans
from throughline.context.markdown.fences import Kind, read
from throughline.domain.citation import Citation
from throughline.domain.ids import SessionId

MOST_CITATIONS = 50
"""Most citations found in one text: the first ones."""

MARK = "[#"
"""Beginning of every citation. A text without it is not searched."""

CODE = "`"
"""Character that replaces each character of code."""

_BETWEEN = " ,;"


@dataclass(frozen=True, slots=True)
class _Bracket:
    """The range of a pair of brackets in a text, and the positions in it, each in the range of its own."""

    start: int
    end: int
    places: tuple[Citation, ...]


def find_citations(text: str, most: int = MOST_CITATIONS) -> tuple[Citation, ...]:
    """Return the first citations of `text`, at most `most`, in their order, with the quotations beside them.

    Brackets that name several positions are several citations. A quotation beside them belongs to none of them, because
    it may come from any. Markdown links and parts of words are no citations.
    """
    return tuple(islice(_citations(text), most)) if MARK in text else ()


def _citations(text: str) -> Iterator[Citation]:
    for start, end in _paragraphs(text):
        if text.find(MARK, start, end) >= 0:
            yield from _of_paragraph(text[start:end], start)


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines without a blank line between them, without fenced code."""
    start = at = 0
    for line in read(text):
        if line.kind is not Kind.TEXT or not line.text.strip():
            yield start, at
            start = at + len(line.text)
        at += len(line.text)
    yield start, at


def _of_paragraph(paragraph: str, offset: int) -> Iterator[Citation]:
    masked = _without_code(paragraph)
    brackets = list(_brackets(masked))
    beside = QuotationSearch(paragraph, masked)
    for before, bracket, after in _with_neighbours(brackets):
        is_alone = len(bracket.places) == 1 and not any(
            _are_adjacent(masked, *pair) for pair in ((before, bracket), (bracket, after))
        )
        within = (before.end if before else 0, after.start if after else len(masked))
        quotation = beside.of(bracket.start, bracket.end, within) if is_alone else ""
        for place in bracket.places:
            start, end = place.start + offset, place.end + offset
            yield Citation(start, end, place.from_position, place.to_position, place.session_id, quotation)


def _without_code(paragraph: str) -> str:
    """Return the paragraph in its length, each character of a code span replaced."""
    if CODE not in paragraph:  # looking for spans takes longer than all else
        return paragraph
    pieces, at = list[str](), 0
    for span in spans(paragraph)[0]:
        pieces += paragraph[at : span.start], CODE * (span.end - span.start)
        at = span.end
    return "".join((*pieces, paragraph[at:]))


def _brackets(masked: str) -> Iterator[_Bracket]:
    for found in BRACKET.finditer(masked):
        places = tuple(_places(masked, found.start() + 1, found.end() - 1))
        if places:
            yield _Bracket(found.start(), found.end(), places)


def _places(masked: str, at: int, end: int) -> Iterator[Citation]:
    """Yield the positions from `at` on; other text after them, such as the author, ends the search."""
    while (found := PLACE.match(masked, at, end)) is not None:
        session = found["session"]
        first = int(found["first"])
        yield Citation(
            start=found.start(),
            end=found.end(),
            from_position=first,
            to_position=int(found["last"] or first),
            session_id=None if session is None else SessionId(UUID(session)),
        )
        following = NEXT.match(masked, found.end(), end)
        if following is None:
            return
        at = following.end()


def _with_neighbours(brackets: list[_Bracket]) -> Iterator[tuple[_Bracket | None, _Bracket, _Bracket | None]]:
    left: list[_Bracket | None] = [None, *brackets]
    yield from zip(left, brackets, [*brackets[1:], None], strict=False)


def _are_adjacent(masked: str, left: _Bracket | None, right: _Bracket | None) -> bool:
    """Return whether nothing but separators is between two pairs of brackets."""
    return left is not None and right is not None and not masked[left.end : right.start].strip(_BETWEEN)
