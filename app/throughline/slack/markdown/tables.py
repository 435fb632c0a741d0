"""Tables, which Slack's Markdown lacks: aligned text in a code block, or a list if that would be too wide.

Tables whose rows do not begin with `|` stay unchanged, because their first line looks like a sentence while it grows.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from throughline.slack.markdown.inline import harmless_code, inline, plain

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
