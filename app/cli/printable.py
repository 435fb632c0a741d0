"""Making values from elsewhere fit to print: no escape sequence in a message may reach the reader's terminal."""

import re
from datetime import datetime

from app.domain.text import clean_text

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links, clipboard
    r"|[PX^_][^\x1b]*\x1b\\"  # device control strings
    r"|[ -/]*[0-~])"
)
# All but tab and line feed, DEL, the second control block, and the marks that turn the reading direction around.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e]")


def printable(text: str) -> str:
    """Return `text` without escape sequences and control characters; line feeds and tabs stay."""
    return CONTROL.sub("", ESCAPE_SEQUENCE.sub("", clean_text(text).replace("\r\n", "\n")))


def one_line(text: str, *, limit: int) -> str:
    """Return `text` made safe, on one line, and cut with an ellipsis after `limit` characters."""
    head = " ".join(printable(text[: limit * 8]).split())
    return head if len(head) <= limit else head[: limit - 1] + "…"


def moment(time: datetime | None) -> str:
    """Return a time as the reader's clock shows it, a dash where there is none."""
    return "–" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M")
