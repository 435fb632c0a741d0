"""Fencing text that is data: a tag around it, and no way for the text itself to close the tag."""

import re
from functools import cache

from throughline.context.homoglyphs import INVISIBLE, LEFT_ANGLES, SLASHES, word_alike


def delimited(tag: str, text: str) -> str:
    """Return `text` between `<tag>` and `</tag>`, with every such tag inside it escaped."""
    return f"<{tag}>\n{escaped(tag, text)}\n</{tag}>"


def undelimited(tag: str, text: str) -> str:
    """Return what stands between `<tag>` and the last `</tag>` of `text`, '' where there is no such frame."""
    _, _, inside = text.partition(f"<{tag}>\n")
    return inside.rpartition(f"\n</{tag}>")[0]


def escaped(tag: str, text: str) -> str:
    """Return `text` with the angle bracket of every opening or closing `tag` in it written as `&lt;`.

    Also of what only looks like one: with invisible characters in it, another bracket or letters of another script.
    """
    return _tag_pattern(tag).sub(r"&lt;\1", text)


@cache
def _tag_pattern(tag: str) -> re.Pattern[str]:
    gap = rf"[\s{INVISIBLE}]*+"
    return re.compile(rf"[{LEFT_ANGLES}]({gap}(?:[{SLASHES}]{gap})?+{word_alike(tag)})", re.IGNORECASE)
