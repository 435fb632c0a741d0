"""Parser of the Markdown that is drawn at a terminal, set so that what the drawing would drop stays text."""

from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.token import Token


def markdown_parser() -> MarkdownIt:
    """Return a parser that leaves HTML, definitions of links, pictures, and addresses in angle brackets as text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["reference", "image", "autolink"])
    parser.core.ruler.after("block", "surplus_cells", _keep_surplus_cells)
    return parser


def block_parser() -> MarkdownIt:
    """Return the same parser for blocks alone: texts within them stay as they are, which takes linear time."""
    parser = markdown_parser()
    parser.core.ruler.disable(["inline", "surplus_cells"])
    return parser


def _keep_surplus_cells(state: StateCore) -> None:
    """Add to the last cell of each row of a table the cells that its header has no columns for."""
    lines = state.src.split("\n")
    cells: list[Token] = []
    for before, token in pairwise(state.tokens):
        if token.type == "tr_open":
            cells = []
        elif before.type == "td_open":
            cells.append(token)
        elif token.type == "tr_close" and cells:
            line = lines[cells[0].map[0]].strip(" \t").lstrip("> \t") if cells[0].map else ""
            surplus = escapedSplit(line.removeprefix("|").removesuffix("|"))[len(cells) :]
            cells[-1].content = " | ".join((cells[-1].content, *filter(None, map(str.strip, surplus))))
