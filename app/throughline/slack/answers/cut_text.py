"""Positions at which the text of an answer may be cut into messages that each stand alone.

The texts are results of `to_slack`.
"""

import re
from collections import deque
from dataclasses import dataclass

from throughline.context.markdown import Fence, Kind, read, spans

_LIKE_A_FENCE = re.compile(r"[ \t>]{0,99}+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,99}+){0,9}+(?:```|~~~)")
"""Text that would be a fence at the beginning of a line. Deeper nesting is not searched for."""


@dataclass(frozen=True, slots=True)
class _Open:
    """Code that is open at a position: the text that closes it there, and the text that opens it again."""

    end: str
    beginning: str


def is_in_fence(text: str, at: int) -> bool:
    """Return whether position `at` is inside a code block."""
    opened = _open_at(text, at)
    return opened is not None and opened.beginning.endswith("\n")


def part_of(text: str, start: int, end: int) -> str:
    """Return `text[start:end]` as a message that stands alone.

    Code that is cut at the piece's end is closed there; code that was cut at its start is opened again.
    """
    opened = _open_at(text, start)
    return ("" if opened is None else opened.beginning) + text[start:end] + closing(text, end)


def closing(text: str, end: int) -> str:
    """Return the text that must follow a cut at `end`: the end of a code block or code span, or ''."""
    opened = _open_at(text, end)
    return "" if opened is None else opened.end


def cut_before(text: str, start: int, limit: int) -> int:
    """Return where to cut so that the piece from `start` has at most `limit` characters.

    The cut is after a paragraph if that keeps more than half, else after a line, else after a word. It is never inside
    or right after a line that opens a code block, unless the piece consists only of that line. Nor does the next piece
    begin with text that would become a fence there.
    """
    if start + limit >= len(text):
        return len(text)
    end = _between_words(text, start, limit)
    while end > start + 1 and text[end - 1] != "\n" and _LIKE_A_FENCE.match(text, end):
        end -= 1
    line = text.rfind("\n", 0, end - 1) + 1
    return line if line > start and _is_opening(text, line, end) else end


def _is_opening(text: str, line: int, end: int) -> bool:
    """Return whether the line from `line` to `end` opens a code block, or may be the beginning of such a line."""
    return text.startswith("```", line) and (text[end - 1] != "\n" or is_in_fence(text, end))


def _between_words(text: str, start: int, limit: int) -> int:
    end = start + limit
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, start + limit // 2, end)
        if found >= 0:
            return found + len(separator)
    return end


def _open_at(text: str, at: int) -> _Open | None:
    """Return the code that is open at a position, None if there is none.

    The position's line is read to its end, because its beginning alone may look like a fence.
    """
    begins = text.rfind("\n", 0, at) + 1
    ends = text.find("\n", at)
    end = len(text) if ends < 0 else ends + 1
    lines = deque(read(text[: end if at > begins else begins]), maxlen=1)
    if not lines:
        return None
    line = lines[0]
    if at == begins:
        return _of_fence(line.fence, "") if line.kind in {Kind.OPENING, Kind.CODE} else None
    is_whole = text[at : at + 1] in {"", "\n"}
    if line.kind is Kind.TEXT:
        return _of_span(line.text, at - begins)
    if line.kind is (Kind.CLOSING if is_whole else Kind.OPENING):
        return None
    return _of_fence(line.fence, "\n")


def _of_fence(fence: Fence | None, before: str) -> _Open | None:
    if fence is None:
        return None
    marks = fence.sign * fence.length
    return _Open(f"{before}{marks}", f"{marks}{fence.info}\n")


def _of_span(line: str, at: int) -> _Open | None:
    found, _ = spans(line)
    ticks = next((span.ticks for span in found if span.start < at < span.end), None)
    return None if ticks is None else _Open(ticks, ticks)
