"""Fenced code blocks, read line by line: which lines are code, and which line ends a block.

The rules are CommonMark's (https://spec.commonmark.org/0.31.2/#fenced-code-blocks). A block ends at a line of the same
marker, at least as long, with nothing after it and indented at most three columns. A fence of backticks has no
backticks in its info string. A fence may be in a quote or in a list item at any depth: open lists are not tracked.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_TICKS = re.compile(r"(?<!\\)(\\*+)(`++)")


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A code span: its start and end in the line, including the backticks, and the backticks themselves."""

    start: int
    end: int
    ticks: str


def spans(line: str) -> tuple[Sequence[CodeSpan], bool]:
    """Return the code spans of a line, and whether unmatched backticks may begin a span that ends in a later line.

    A span ends at as many backticks as began it. A backslash escapes the first backtick after it.
    """
    runs = list(_TICKS.finditer(line))
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for run in runs:
        by_length[len(run[2])].append(run.start(2))
    found, at, leaves_open = list[CodeSpan](), 0, False
    for run in runs:
        begins, end = run.start(2) + len(run[1]) % 2, run.end()
        if begins < at or begins == end:
            continue
        closers = by_length[end - begins]
        closer = bisect_right(closers, begins)
        if closer == len(closers):
            leaves_open = True
            continue
        at = closers[closer] + end - begins
        found.append(CodeSpan(begins, at, line[begins:end]))
    return found, leaves_open


_OPENING = re.compile(
    r"^(?P<before>[ \t>]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++[ \t>]*+)*+)"
    r"(?:(?P<ticks>`{3,64})(?!`)(?P<info>[^`]*+)|(?P<tildes>~{3,64})(?!~)(?P<tail>.*+))",
    re.DOTALL,
)
TAB_COLUMNS = 4
DEEPER_COLUMNS = 3
LONGEST_INFO = 40


class Kind(Enum):
    """The kind of a line: text outside of code, the opening or closing line of a code block, or code inside one."""

    TEXT = "text"
    OPENING = "opening"
    CODE = "code"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Fence:
    """An open code block: its marker, the number of quotes around it, its indentation, and the text around the marker.

    `before` is the beginning of a list item, '' without one. `first` is text after the marker that is too long for
    `info`: code that models write there.
    """

    sign: str
    length: int
    quotes: int
    columns: int
    before: str
    info: str
    first: str

    def code(self, line: str) -> str | None:
        """Return a line of the block without quotes and indentation, None if the line is outside of the quote."""
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
        """Return whether a line, as `code` returns it, ends the block."""
        found = code.strip()
        indentation = code[: len(code) - len(code.lstrip(" \t"))]
        is_sign = len(found) >= self.length and not found.strip(self.sign)
        return is_sign and _columns(indentation) <= DEEPER_COLUMNS


@dataclass(frozen=True, slots=True)
class MarkdownLine:
    """A line with its line end. `fence` is the block that it opens, belongs to or closes; `code` is its code.

    If a block ends because its quote ends, a closing line without text follows.
    """

    kind: Kind
    text: str
    fence: Fence | None = None
    code: str = ""


def split(text: str) -> list[str]:
    """Return the lines with their line ends. Unlike in `str.splitlines`, only a line feed ends a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def read(text: str) -> Iterator[MarkdownLine]:
    """Yield the lines of a text with their kinds."""
    fence: Fence | None = None
    for line in split(text):
        if fence is None:
            fence = opened_by(line)
            yield MarkdownLine(Kind.TEXT, line) if fence is None else MarkdownLine(Kind.OPENING, line, fence)
            continue
        code = fence.code(line)
        if code is None:
            yield MarkdownLine(Kind.CLOSING, "", fence)
            fence = opened_by(line)
            yield MarkdownLine(Kind.TEXT, line) if fence is None else MarkdownLine(Kind.OPENING, line, fence)
        elif fence.is_closed_by(code):
            yield MarkdownLine(Kind.CLOSING, line, fence)
            fence = None
        else:
            yield MarkdownLine(Kind.CODE, line, fence, code)


def opened_by(line: str) -> Fence | None:
    """Return the code block that a line of text opens, None if it opens none."""
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
