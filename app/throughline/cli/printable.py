"""Conversion of foreign texts to printable ones: no escape sequence in a message may reach the terminal."""

import re
import textwrap
from collections.abc import Iterable
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from throughline.domain.message import clean_text

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links, clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # device control strings
    r"|[ -/]*[0-~])"
)
# Control characters except tab and line feed, and marks that change the reading direction.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return `text` without escape sequences and control characters; line feeds and tabs stay."""
    return CONTROL.sub("", ESCAPE_SEQUENCE.sub("", clean_text(text).replace("\r\n", "\n")))


def one_line(text: str, *, limit: int) -> str:
    """Return `text` on one line, without control characters, and cut to `limit` characters with an ellipsis."""
    head = " ".join(printable(text[: limit * 8]).split())
    return head if len(head) <= limit else head[: limit - 1] + "…"


def wrapped(text: str, *, width: int) -> list[str]:
    """Return `text` in lines of at most `width` columns; a character may take two columns.

    Lines are not broken at hyphens, so that ids and options stay whole.
    """
    wider = cell_len(text) - len(text)
    return textwrap.wrap(text, max(width - wider, width // 2), break_on_hyphens=False)


def joined(lines: Iterable[Text], *, width: int) -> Text:
    """Return `lines` as one text, each cut with an ellipsis if it is wider than `width` columns."""
    shown = list(lines)
    for line in shown:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(shown)


def to_the_second(time: datetime) -> str:
    """Return a time in the local time zone, with its seconds."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def moment(time: datetime | None) -> str:
    """Return a time in the local time zone, a dash for None and for times that cannot be converted."""
    try:
        return "–" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # a year for which there are no time zone data
        return "–"
