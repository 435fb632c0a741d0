"""Delimiters for text that is data: a tag around it, which the text itself cannot close."""

import re
from functools import cache

from throughline.context.homoglyphs import INVISIBLE, LEFT_ANGLES, MARKS, SLASHES, word_alike


def delimited(tag: str, text: str) -> str:
    """Return `text` between `<tag>` and `</tag>`, with every such tag inside it escaped."""
    return f"<{tag}>\n{escaped(tag, text)}\n</{tag}>"


def undelimited(tag: str, text: str) -> str:
    """Return the text between `<tag>` and the last `</tag>` of `text`; '' without such tags."""
    _, _, inside = text.partition(f"<{tag}>\n")
    return inside.rpartition(f"\n</{tag}>")[0]


def escaped(tag: str, text: str) -> str:
    """Return `text` with the angle bracket of every opening or closing `tag` in it written as `&lt;`.

    Imitations are escaped, too: tags with invisible or decorating characters, other brackets, or similar letters of
    other scripts.
    """
    return _tag_pattern(tag).sub(r"&lt;\1", text)


@cache
def _tag_pattern(tag: str) -> re.Pattern[str]:
    gap = rf"[\s{INVISIBLE}{MARKS}]*+"
    return re.compile(rf"[{LEFT_ANGLES}]({gap}(?:[{SLASHES}]{gap})?+{word_alike(tag)})", re.IGNORECASE)
