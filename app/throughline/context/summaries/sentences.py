"""The sentences of a text, without list markers; line breaks that only wrap a line do not end a sentence."""

import re
from collections.abc import Iterator

WRAPPED_LINE = 60
"""A line of at least this length without a sentence's end continues in the next line, if that begins in lower case."""

_END = re.compile(r"[.!?…]{1,9}(?=[\"'”’)\]*_x]{0,3}(?:\s|$))|[。！？；]|\n")
_ABBREVIATION = re.compile(
    r"(?i)(?:^|[^\w'])(?:e\.g|i\.e|z\.\s?b|d\.\s?h|etc|dr|mrs?|ms|prof|vs|approx|no|nr|bzw|ca|usw|[b-hj-z])$|^\s*\d+$"
)
_MONTHS = (
    r"jan(?:uary|uar|vier|eiro)?|feb(?:ruary|ruar|rero|braio)?|fév(?:rier)?|fevereiro|mar(?:ch|s|zo|ço)?"
    r"|märz|apr(?:il|ile)?"
    r"|avril|abril|may|mai|mayo|maggio|maio|june?|juni|juin|junio|giugno|junho|july?|juli|juillet|julio"
    r"|luglio|julho|aug(?:ust)?"
    r"|août|agosto|sep(?:t|tember|tembre|tiembre)?|settembre|setembro|oct(?:ober|obre|ubre)?|okt(?:ober)?"
    r"|ottobre|outubro"
    r"|nov(?:ember|embre|iembre|embro)?|dec(?:ember)?|dez(?:ember|embro)?|déc(?:embre)?|diciembre|dicembre"
    r"|enero|gennaio"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
)
"""Month names: after a number and a full stop they continue a date, as in "14. Mai"."""

_MONTH = re.compile(rf" (?:{_MONTHS})\b", re.IGNORECASE)
_LIST_MARKER = re.compile(r"\s*+(?:(?:[-*•+–]|\d{1,2}[.)]|\(?[a-z\d]\)|#{1,6}|\[[ x]\])\s++){0,2}+[\s*_]*+")


def sentences_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of each sentence, without list markers and surrounding white space."""
    start = 0
    for end in (*_END.finditer(text), None):
        if end and _goes_on(text, start, end):
            continue
        stop = end.end() if end else len(text)
        marker = _LIST_MARKER.match(text, start, stop)
        first = marker.end() if marker else start
        last = first + len(text[first:stop].rstrip())
        if last - first > 1:
            yield first, last
        start = stop


def one_line(text: str, most: int | None = None) -> str:
    """Return `text` with single spaces for all white space; if longer than `most` characters, cut and ended by `…`."""
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _goes_on(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether a full stop only ends an abbreviation or a number, or a line break only wraps a line."""
    if end[0] == "\n":
        line = end.start() - max(start, text.rfind("\n", start, end.start()) + 1)
        return line >= WRAPPED_LINE and text[end.end() : end.end() + 1].islower()
    if end[0] == "." and text[max(start, end.start() - 1) : end.start()].isdigit() and _MONTH.match(text, end.end()):
        return True
    return end[0] == "." and bool(_ABBREVIATION.search(text[max(start, end.start() - 8) : end.start()]))
