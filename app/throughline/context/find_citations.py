"""Search of a text for citations such as `[#12]`, `[#12-#40]` and `[#12 in session 0198…]`.

Summaries and answers use this form, and so do the heads of messages that recall tools quote. Code is not searched: a
text that explains citations cites nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from throughline.context.markdown import Kind, read, spans
from throughline.domain.basic_types import SessionId
from throughline.domain.recall import Citation

_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,200}+)[\])]?")
_UNCOMPARED = str.maketrans(dict.fromkeys("\"'`*«»‹›‚‘’‛„“”‟＂＇", ""))
_END = " .,;:!?"


def contains_quotation(folded: str, quotation: str) -> bool:
    """Return whether a text, as `fold_text` returns it, contains the quotation.

    Case, white space, quotation marks, and Markdown's marks of emphasis and code are not compared, nor is punctuation
    at the end of the quotation. The parts around an ellipsis must be contained in their order.
    """
    at = 0
    parts = [fold_text(part) for part in _ELLIPSIS.split(quotation)]
    parts[-1] = parts[-1].rstrip(_END)
    for part in parts:
        found = folded.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def fold_text(text: str) -> str:
    """Return the text as quotations are compared: lower case, single spaces, no quotation marks or Markdown marks."""
    return " ".join(text.translate(_UNCOMPARED).casefold().split())


# The form of citations such as `[#12]` and `[#12-#40]`, as regular expressions.
#
# Readers of citations take the exact form. The check of summaries also takes what models write instead of it, such as
# `[#12; 15 - 20]`.

POSITION_DIGITS = 9
"""Most digits of a position in any session."""

_NUMBER = rf"[0-9]{{1,{POSITION_DIGITS}}}(?![0-9])"
_DASH = "[–—-]"
_BEGINS = r"(?<![\w`-]\[#)(?=[0-9])"
_ENDS = r"\](?![(`\w])"
"""What may not stand around the brackets: links, code and parts of words are no citations."""

BRACKET = re.compile(rf"\[#{_BEGINS}[^\[\]`\n]{{1,200}}+{_ENDS}")
"""A pair of square brackets that begins with a position, such as `[#12]` or `[#12, user]`."""

PLACE = re.compile(
    rf"#(?P<first>{_NUMBER})(?:[ ]?{_DASH}[ ]?#?(?P<last>{_NUMBER}))?"
    r"(?: in session (?P<session>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(?![\w-]))?"
)
"""One position or span of positions in brackets, with its session if that is another one."""

NEXT = re.compile(r"[ ]?[,;][ ]?(?=#)|[ ](?=#)")
"""Separator of two positions in the same brackets: a comma, a semicolon or a space before `#`."""

LOOSE_BRACKET = re.compile(rf"(?P<before>[^\S\n]?+)\[(?P<places>#{_BEGINS}[\s,;#–—0-9-]++){_ENDS}")
"""Brackets that begin with `[#` and a digit and hold only digits and separators, with the white space before them."""

LOOSE_PLACE = re.compile(rf"#?([0-9]++)(?:\s*+{_DASH}\s*+#?([0-9]++))?+")
"""One number or span of numbers in brackets that LOOSE_BRACKET finds, however many digits the numbers have."""

MARKED_NUMBER = re.compile(rf"#({_NUMBER})")
"""A number after `#`, anywhere in a text."""


MOST_CHARACTERS = 2_000
"""Longest quotation that is found."""

MOST_MARKS = 20
"""Most quotation marks that are tried as the other end of one quotation: for each, the text in between is read."""

MOST_BETWEEN = 8
"""Most characters between a quotation and its citation: spaces and punctuation that ends no sentence."""

_BEFORE_CITATION, _AFTER_CITATION = " \t\u00a0\u202f,:(–—-*_", " \t\u00a0\u202f,:)–—-*_"
_OPENERS = {
    '"': '"',
    "\N{LEFT DOUBLE QUOTATION MARK}": "\N{DOUBLE LOW-9 QUOTATION MARK}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "\N{LEFT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}",
    "»": "«",
    "«": "»",
    "'": "'",
    "\N{LEFT SINGLE QUOTATION MARK}": "\N{SINGLE LOW-9 QUOTATION MARK}",
    "\N{RIGHT SINGLE QUOTATION MARK}": "\N{LEFT SINGLE QUOTATION MARK}\N{SINGLE LOW-9 QUOTATION MARK}",
}
"""For each closing quotation mark, the marks that may open the quotation: straight, English, German and guillemets."""

_CLOSERS = {
    opener: "".join(closer for closer, openers in _OPENERS.items() if opener in openers)
    for opener in "".join(_OPENERS.values())
}


@dataclass(slots=True)
class QuotationSearch:
    """Search for the quotations beside the citations of one paragraph, called for the citations in their order.

    A quotation is given to one citation only. `masked` is the paragraph with each character of code replaced, so that
    quotation marks in code do not count.
    """

    paragraph: str
    masked: str
    _used: int = field(default=0, init=False)

    def of(self, start: int, end: int, within: tuple[int, int]) -> str:
        """Return the quotation beside the citation in the range `start` to `end`, '' without one.

        The quotation must lie in the range `within`, between the neighbouring citations. One before the citation is
        preferred to one after it.
        """
        self._used = max(self._used, within[0])
        found = self._preceding(start) or self._following(end, within[1])
        if found is None:
            return ""
        self._used = found[1] + 1
        return self.paragraph[found[0] : found[1]].strip()

    def _preceding(self, start: int) -> tuple[int, int] | None:
        lowest = max(start - MOST_BETWEEN, self._used, 1)
        close = start - 1
        while close >= lowest and self.masked[close] in _BEFORE_CITATION:
            close -= 1
        if close < lowest or self.masked[close] not in _OPENERS:
            return None
        openers = _OPENERS[self.masked[close]]
        first = max(self._used, close - MOST_CHARACTERS)
        opens = (at for at in range(close - 1, first - 1, -1) if self.masked[at] in openers)
        tried = islice(opens, MOST_MARKS)
        return next(((at + 1, close) for at in tried if self._is_quotation(at, close)), None)

    def _following(self, end: int, most: int) -> tuple[int, int] | None:
        text, last = self.masked, min(end + MOST_BETWEEN, most - 1)
        begin = end
        while begin < last and text[begin] in _AFTER_CITATION:
            begin += 1
        if begin > last or text[begin : begin + 1] not in _CLOSERS:
            return None
        closers = _CLOSERS[text[begin]]
        ends = (at for at in range(begin + 1, min(begin + MOST_CHARACTERS, most)) if text[at] in closers)
        close = next((at for at in islice(ends, MOST_MARKS) if self._is_quotation(begin, at)), None)
        if close is None or (":" not in text[end:begin] and self._is_next_ones(close)):
            return None
        return begin + 1, close

    def _is_quotation(self, opened: int, closed: int) -> bool:
        """Return whether the marks at these positions enclose a text, and are no apostrophes or inches."""
        text = self.masked
        is_outside = not text[max(opened - 1, 0) : opened].isalnum() and not text[closed + 1 : closed + 2].isalnum()
        is_tight = text[opened] in "«»" or not (text[opened + 1].isspace() or text[closed - 1].isspace())
        return is_outside and is_tight and any(map(str.isalnum, self.paragraph[opened + 1 : closed]))

    def _is_next_ones(self, close: int) -> bool:
        """Return whether another citation stands directly behind the quotation, which then belongs to that one."""
        behind = self.masked[close + 1 : close + 1 + MOST_BETWEEN]
        return behind.lstrip(_BEFORE_CITATION).startswith("[#")


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


def places_in(text: str) -> Iterator[Citation]:
    """Yield the citations of a text that has no code, without their quotations."""
    for bracket in _brackets(text):
        yield from bracket.places


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
