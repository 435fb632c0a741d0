"""Code blocks between fences, read line by line: which lines are code, and what ends it.

The rules are CommonMark's (https://spec.commonmark.org/0.31.2/#fenced-code-blocks): a block ends at a line of the same
sign, at least as long, with nothing behind it and at most three columns deeper; a fence of backticks has none in what
follows it. A fence may stand in a quote or in an item of a list, and as deep as it likes: which lists are open is not
looked into.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

_OPENING = re.compile(
    r"^(?P<before>[ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++[ \t>]*+)*+)"
    r"(?:(?P<ticks>`{3,64})(?!`)(?P<info>[^`]*+)|(?P<tildes>~{3,64})(?!~)(?P<tail>.*+))",
    re.DOTALL,
)
TAB_COLUMNS = 4
DEEPER_COLUMNS = 3
LONGEST_INFO = 40


class Kind(Enum):
    """What a line is."""

    TEXT = "text"
    OPENING = "opening"
    CODE = "code"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Fence:
    """An open code block: its sign and length, the quotes around it, how deep it stands, what stands before and behind.

    `before` is what an item of a list begins with, '' where there is none. `first` is what stands behind the marks and
    is too long for `info`: code, which models write there.
    """

    sign: str
    length: int
    quotes: int
    columns: int
    before: str
    info: str
    first: str

    def code(self, line: str) -> str | None:
        """Return a line of it without its quotes and indentation, None where the line is not in the quote any more."""
        for _ in range(self.quotes):
            line = line.lstrip(" \t")
            if not line.startswith(">"):
                return None
            line = line[1:]
        at, column = 0, 0
        while at < len(line) and column < self.columns and line[at] in " \t":
            column += _columns(line[at])
            at += 1
        return line[at:]

    def is_closed_by(self, code: str) -> bool:
        """Whether a line, as `code` returns it, ends the block."""
        found = code.strip()
        indentation = code[: len(code) - len(code.lstrip(" \t"))]
        is_sign = len(found) >= self.length and not found.strip(self.sign)
        return is_sign and _columns(indentation) <= DEEPER_COLUMNS


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its end. `fence` is the block it opens, belongs to or closes, `code` what it holds of it.

    Where a block ends because its quote does, a closing line of no text stands between.
    """

    kind: Kind
    text: str
    fence: Fence | None = None
    code: str = ""


def split(text: str) -> list[str]:
    """Return the lines with their ends; other than `str.splitlines` only a line feed ends one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def read(text: str) -> Iterator[Line]:
    """Yield the lines of a text with what they are."""
    fence: Fence | None = None
    for line in split(text):
        if fence is None:
            fence = opened_by(line)
            yield Line(Kind.TEXT, line) if fence is None else Line(Kind.OPENING, line, fence)
            continue
        code = fence.code(line)
        if code is None:
            yield Line(Kind.CLOSING, "", fence)
            fence = opened_by(line)
            yield Line(Kind.TEXT, line) if fence is None else Line(Kind.OPENING, line, fence)
        elif fence.is_closed_by(code):
            yield Line(Kind.CLOSING, line, fence)
            fence = None
        else:
            yield Line(Kind.CODE, line, fence, code)


def opened_by(line: str) -> Fence | None:
    """Return the block that a line of text opens."""
    found = _OPENING.fullmatch(line)
    if found is None:
        return None
    marks = found["ticks"] or found["tildes"]
    before = found["before"]
    inner = before[before.rfind(">") + 1 :]
    behind = (found["info"] or found["tail"] or "").strip()
    is_info = len(behind) <= LONGEST_INFO
    return Fence(
        sign=marks[0],
        length=len(marks),
        quotes=before.count(">"),
        columns=_columns(inner),
        before=before if before.strip(" \t>") else "",
        info=behind if is_info else "",
        first="" if is_info else behind,
    )


def _columns(indentation: str) -> int:
    return len(indentation) + (TAB_COLUMNS - 1) * indentation.count("\t")
