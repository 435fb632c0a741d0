"""Conversion of a model's Markdown to Slack's, for a complete text or one that still grows.

Slack's Markdown: https://docs.slack.dev/reference/block-kit/blocks/markdown-block/ .

- Code blocks are moved out of quotes and lists, where Slack cannot show them.
- Tables become text or lists. Images become their addresses, which nothing fetches.
- Text that would notify people, link to a user or channel, or hide its target loses its effect.
- All else stays unchanged, because Slack understands it.

For the beginning of a text, up to `settled`, the result of `to_slack` is the beginning of the result for the whole
text. Therefore an answer can grow.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from throughline.context.markdown import Fence, Kind, Line, read
from throughline.slack.markdown.inline import harmless_code, inline, inline_lines, plain

# Tables, which Slack's Markdown lacks: aligned text in a code block, or a list if that would be too wide.
#
# Tables whose rows do not begin with `|` stay unchanged, because their first line looks like a sentence while it grows.

_SEPARATOR = re.compile(r"^\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+$")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
_MANY_TICKS = re.compile(r"`{3,}+")
LINE_CHARS = 100
"""Approximate width of a code block in Slack on a desktop. Longer lines are wrapped and lose their alignment."""

LABEL_CHARS = 40
GROWTH, ALLOWANCE = 4, 2000
"""Factor and number of characters by which a table may grow: a few long cells must not widen many short ones."""


def is_row(line: str) -> bool:
    """Return whether a line may be a row of a table."""
    return line.lstrip().startswith("|")


def is_separator(line: str) -> bool:
    """Return whether a line may be the separator below the head of a table."""
    return bool(_SEPARATOR.match(line))


def table(rows: Sequence[str]) -> str:
    """Return the rows of a table, the head and the separator first, in a form that Slack can show."""
    ending = "\n" if rows[-1].endswith("\n") else ""
    most = GROWTH * sum(map(len, rows)) + ALLOWANCE
    cells = [_cells(row) for row in (rows[0], *rows[2:])]
    aligned = _aligned(cells)
    if aligned is not None and len(aligned) <= most:
        return aligned + ending
    listed = _listed(cells)
    return (listed if listed and len(listed) <= most else _joined(cells)) + ending


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _BETWEEN_CELLS.split(inner)]


def _aligned(cells: Sequence[Sequence[str]]) -> str | None:
    """Return the cells in aligned columns, None if a line would be too long."""
    words = [[plain(cell) for cell in row] for row in cells]
    widths: list[int] = []
    for row in words:
        widths = [max(pair) for pair in zip_longest(widths, map(_width, row), fillvalue=0)] if row else widths
        if sum(widths) + 2 * len(widths) > LINE_CHARS:
            return None
    lines = ["  ".join(map(_padded, row, widths)).rstrip() for row in words]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(["```", lines[0], rule, *lines[1:], "```"])


def _listed(cells: Sequence[Sequence[str]]) -> str:
    """Return a list item for each row, with the column names before its cells; '' without rows.

    If a column name is too long to be repeated, the names become the first item instead.
    """
    labels = [plain(label) for label in cells[0]]
    are_short = all(len(label) <= LABEL_CHARS for label in labels)
    rows, names = (cells[1:], labels) if are_short else (cells, [])
    return "\n".join(item for row in rows if (item := _item(row, names)))


def _item(row: Sequence[str], labels: Sequence[str]) -> str:
    named = [(label, cell) for cell, label in zip_longest(row, labels[: len(row)], fillvalue="") if cell]
    shown = [f"**{inline(label)}**: {_cell(cell)}" if label else _cell(cell) for label, cell in named]
    return f"- {'; '.join(shown)}" if shown else ""


def _cell(cell: str) -> str:
    return inline(_MANY_TICKS.sub("`", cell))


def _joined(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join([
        "```",
        *(" | ".join(harmless_code(cell.replace("`", "")) for cell in row) for row in cells),
        "```",
    ])


def _width(text: str) -> int:
    return sum(_columns(sign) for sign in text)


def _columns(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


_UNDECIDED = re.compile(r"[\[\]<>!|`*_~#]")
_TICKS_AT_START = re.compile(r"^[ \t]*+(`++)")


def to_slack(text: str) -> str:
    """Return a model's Markdown converted to Slack's, for the parameter `markdown_text` of Slack's methods."""
    return "".join(_blocks(list(read(text))))


def settled(text: str) -> int:
    """Return the length of the beginning of a growing text whose display no later text can change.

    It includes whole lines, and the plain words at the beginning of the last line. It excludes a table that may
    continue, and a code block whose fence must become longer than any fence in it.
    """
    whole = text.rfind("\n") + 1
    at, held, fence = 0, whole, None
    for line in read(text[:whole]):
        fence = line.fence if line.kind in {Kind.OPENING, Kind.CODE} else None
        if not _may_look_otherwise(line, fence):
            held = whole
        elif held == whole:
            held = at
        at += len(line.text)
    is_plain = held == whole and fence is None
    return held + _plain_words(text[whole:]) if is_plain else held


def _may_look_otherwise(line: Line, fence: Fence | None) -> bool:
    """Return whether later text may change the line: a table row, or a line in a block whose fence is rewritten."""
    if fence is not None:
        return fence.sign == "~"
    return line.kind is Kind.TEXT and is_row(line.text)


def _plain_words(line: str) -> int:
    """Return the length of the beginning of an unfinished line that is plain words and will stay so."""
    end = line.rfind(" ") + 1
    begins = line[:end].lstrip()
    is_plain = begins and not _UNDECIDED.search(begins) and not begins.startswith(("-", "+", ">"))
    return end if is_plain else 0


def _blocks(lines: Sequence[Line]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        if _is_table(lines, at):
            rows = _rows(lines, at)
            yield table(rows)
            at += len(rows)
        elif lines[at].fence is not None:
            block = _block(lines, at)
            yield from _code_block(block)
            at += len(block)
        else:
            words = _words(lines, at)
            yield from inline_lines(words)
            at += len(words)


def _is_table(lines: Sequence[Line], at: int) -> bool:
    head = lines[at : at + 2]
    return len(head) > 1 and all(map(_is_row, head)) and is_separator(head[1].text)


def _is_row(line: Line) -> bool:
    return line.kind is Kind.TEXT and is_row(line.text)


def _rows(lines: Sequence[Line], at: int) -> list[str]:
    end = at
    while end < len(lines) and _is_row(lines[end]):
        end += 1
    return [line.text for line in lines[at:end]]


def _words(lines: Sequence[Line], at: int) -> list[str]:
    """Return the lines up to the next table or code block, at least one."""
    end = at + 1
    while end < len(lines) and lines[end].kind is Kind.TEXT and not _is_table(lines, end):
        end += 1
    return [line.text for line in lines[at:end]]


def _block(lines: Sequence[Line], at: int) -> Sequence[Line]:
    """Return the lines of the code block that begins at `at`, including its last line."""
    end = at + 1
    while end < len(lines) and lines[end].kind is not Kind.OPENING and lines[end].fence is not None:
        end += 1
    return lines[at:end]


def _code_block(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the code block without indentation, between backticks, with its code."""
    opening = lines[0]
    fence = opening.fence
    assert fence is not None  # an opening line has one
    marks = "`" * _length(fence, lines)
    if fence.before:
        yield f"{fence.before}\n"
    yield f"{marks}{harmless_code(fence.info.replace('`', ''))}"
    yield f"\n{harmless_code(fence.first)}" if fence.first else ""
    yield _ending(opening.text)
    for line in lines[1:]:
        match line.kind:
            case Kind.CLOSING:
                yield marks + (_ending(line.text) if line.text else "\n")
            case _:
                yield harmless_code(line.code)


def _length(fence: Fence, lines: Sequence[Line]) -> int:
    """Return the number of backticks for the block's fence, such that no line inside ends the block.

    A fence that consists of backticks keeps its length.
    """
    if fence.sign == "`":
        return fence.length
    inside = map(_TICKS_AT_START.match, (fence.first, *(line.code for line in lines[1:])))
    return max([fence.length, *(len(found[1]) + 1 for found in inside if found)])


def _ending(line: str) -> str:
    return "\n" if line.endswith("\n") else ""
