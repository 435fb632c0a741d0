"""Search for the text in quotation marks that stands directly before or after a citation."""

from dataclasses import dataclass, field
from itertools import islice

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
