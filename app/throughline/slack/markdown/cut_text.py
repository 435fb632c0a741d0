"""Where the text of an answer may be cut into messages, so that each stands alone.

Texts are as `to_slack` makes them.
"""

import re
from collections import deque
from dataclasses import dataclass

from throughline.slack.markdown.fences import Fence, Kind, read
from throughline.slack.markdown.inline import spans

_LIKE_A_FENCE = re.compile(r"[ \t>]{0,99}+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,99}+){0,9}+(?:```|~~~)")
"""What would be a fence if it stood at the beginning of a line; deeper nesting is not looked for."""


@dataclass(frozen=True, slots=True)
class _Open:
    """What a position stands inside: how it is ended there, and begun again behind."""

    end: str
    beginning: str


def is_in_fence(text: str, at: int) -> bool:
    """Whether position `at` stands inside a code block."""
    opened = _open_at(text, at)
    return opened is not None and opened.beginning.endswith("\n")


def part_of(text: str, start: int, end: int) -> str:
    """Return a piece of a text to stand alone: code that is cut is closed, and opened again in the next."""
    opened = _open_at(text, start)
    return ("" if opened is None else opened.beginning) + text[start:end] + closing(text, end)


def closing(text: str, end: int) -> str:
    """Return what has to follow where a text is cut at `end`: the end of a code block or of a code span, or nothing."""
    opened = _open_at(text, end)
    return "" if opened is None else opened.end


def cut_before(text: str, start: int, limit: int) -> int:
    """Return where to cut so that the piece from `start` has at most `limit` characters.

    Behind a paragraph if that leaves more than half, else behind a line, else behind a word; never in or behind a line
    that opens a code block, if that is not all there is, nor so that the next piece begins with what is no fence here.
    """
    if start + limit >= len(text):
        return len(text)
    end = _between_words(text, start, limit)
    while end > start + 1 and text[end - 1] != "\n" and _LIKE_A_FENCE.match(text, end):
        end -= 1
    line = text.rfind("\n", 0, end - 1) + 1
    return line if line > start and _is_opening(text, line, end) else end


def _is_opening(text: str, line: int, end: int) -> bool:
    """Whether the line from `line` to `end` opens a code block, or may be the beginning of one that does."""
    return text.startswith("```", line) and (text[end - 1] != "\n" or is_in_fence(text, end))


def _between_words(text: str, start: int, limit: int) -> int:
    end = start + limit
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, start + limit // 2, end)
        if found >= 0:
            return found + len(separator)
    return end


def _open_at(text: str, at: int) -> _Open | None:
    """Return what is open at a position. A line is read whole: its beginning alone may look like a fence."""
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
