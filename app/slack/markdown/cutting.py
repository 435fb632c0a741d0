"""Where the text of an answer may be cut into messages, so that each stands alone.

Texts are as `as_slack` makes them.
"""

import re

from app.slack.markdown.fences import Fence, Kind, read

_LIKE_A_FENCE = re.compile(r"[ \t>]{0,99}+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,99}+){0,9}+(?:```|~~~)")
"""What would be a fence if it stood at the beginning of a line; deeper nesting is not looked for."""


def is_in_fence(text: str, at: int) -> bool:
    """Whether position `at` stands inside a code block."""
    return _open_at(text, at) is not None


def part_of(text: str, start: int, end: int) -> str:
    """Return a piece of a text to stand alone: a code block that is cut is closed, and opened again in the next."""
    fence = _open_at(text, start)
    opening = "" if fence is None else f"{_marks(fence)}{fence.info}\n"
    return opening + text[start:end] + closing(text, end)


def closing(text: str, end: int) -> str:
    """Return what has to follow where a text is cut at `end`: the end of a code block, or nothing."""
    fence = _open_at(text, end)
    if fence is None:
        return ""
    return _marks(fence) if text[:end].endswith("\n") else f"\n{_marks(fence)}"


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
    is_torn = text.startswith("```", line) and (text[end - 1] != "\n" or is_in_fence(text, end))
    return line if is_torn and line > start else end


def _between_words(text: str, start: int, limit: int) -> int:
    end = start + limit
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, start + limit // 2, end)
        if found >= 0:
            return found + len(separator)
    return end


def _open_at(text: str, at: int) -> Fence | None:
    """Return the block that is open at a position."""
    fence: Fence | None = None
    for line in read(text[:at]):
        fence = line.fence if line.kind in {Kind.OPENING, Kind.CODE} else None
    return fence


def _marks(fence: Fence) -> str:
    return fence.sign * fence.length
