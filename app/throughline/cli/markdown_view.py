"""Drawing of Markdown at a terminal, block by block, in rows that are wrapped between words.

Answers use it. Nothing in a text becomes a control character: entities and link targets could bring them back after
`printable` has removed them, so every row is cleaned once more. No links of the terminal (OSC 8) are written: the
address stands behind its text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from throughline.cli.printable import CONTROL


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


Row: TypeAlias = list[Segment]

THEME = Theme({
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold italic",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.link": "underline",
    "markdown.link_url": "dim",
    "markdown.block_quote": "italic",
})
"""Styles without backgrounds, which would suit either dark or light terminals only."""

TAB = 4
LABEL = "dim"
LISTS = frozenset({"bullet_list_open", "ordered_list_open"})

DEEPEST = 18
"""Level of the deepest list item or quote that is drawn. The parser drops what is in one below it."""
CONTAINERS = frozenset({"blockquote_open", "list_item_open"})

NARROWEST = 4
"""Columns that the text in nested blocks and in each cell of a table has at least, else the drawing would drop it."""

AROUND_CELL = 2
"""Columns that a table takes beside the text of each cell."""

FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?: {1,4}(?=\S)| ?)")
OPENERS = {"blockquote_open": "> # x", "table_open": "|x|\n|-|\n|", "heading_open": "# x", "code_block": "    x"}

_PARSER = markdown_parser()
_BLOCK_PARSER = block_parser()


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A block of Markdown: a paragraph, a heading, one item of a list, a table, code and so on.

    `lines` are its lines with their ends. `continues`: no blank line comes before it. `code` is what fenced code
    contains, None for all other blocks; `label` is what stands behind its fence, '' if that only names a language.
    `opener` is the shortest text that begins a block like it, without a line end. `is_plain`: no Markdown is in it.
    """

    lines: tuple[str, ...]
    continues: bool = False
    code: str | None = None
    label: str = ""
    opener: str = ""
    is_plain: bool = False


def blocks_of(text: str) -> tuple[MarkdownBlock, ...]:
    """Return the blocks of a text, which can be drawn one by one. Nested blocks belong to the outermost one."""
    tokens = _BLOCK_PARSER.parse(text)
    starts = [
        (token, token.map[0], token.type == "list_item_open" and before.type not in LISTS)
        for before, token in pairwise((Token("", "", 0), *tokens))
        if token.map and _starts_block(token)
    ]
    if not starts:
        return ()
    lines = lines_of(text)
    begins = [line for _, line, _ in starts]
    ends = [*begins[1:], len(lines)]
    return tuple(
        MarkdownBlock(
            lines[begin:end],
            continues=is_next_item,
            code=token.content if token.type == "fence" else None,
            label=_label_of(token),
            opener=_opener_of(token, lines[begin]),
        )
        for (token, _, is_next_item), begin, end in zip(starts, begins, ends, strict=True)
    )


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines of a text with their ends. The last one has none."""
    *whole, rest = text.split("\n")
    return (*(f"{line}\n" for line in whole), rest)


def rows_of(console: Console, block: MarkdownBlock, *, width: int) -> list[Row]:
    """Return the rows of a block, without blank ones around them. Lines of fenced code are not broken.

    Blocks that are nested too deep for the parser or the width, and tables too wide for it, are shown as plain text.
    """
    if block.code is not None:
        return _rows_of_code(console, block.code, label=block.label)
    text = "".join(block.lines)
    markdown = _AnswerMarkdown("" if block.is_plain else text)
    drawing = Text(text, overflow="fold") if block.is_plain or not _can_draw(markdown.parsed, width) else markdown
    segments = console.render(drawing, console.options.update(width=width))
    rows = [_cleaned(row) for row in Segment.split_lines(segments)]
    while rows and not rows[-1]:
        rows.pop()
    if block.is_plain:
        return rows
    return rows[next((n for n, row in enumerate(rows) if row), 0) :]


def _starts_block(token: Token) -> bool:
    """Return whether the token opens an outermost block. Each item of an outermost list is one."""
    if token.type in LISTS:
        return False
    return token.nesting >= 0 and token.level == (1 if token.type == "list_item_open" else 0)


def _opener_of(token: Token, line: str) -> str:
    """Return the shortest text that begins a block as the token does, whose first line is given.

    Containers begin with a heading: unlike a paragraph, no line without their mark continues it.
    """
    if token.type == "list_item_open" and (mark := ITEM.match(line)):
        return f"{mark.group()}# x"
    if token.type == "fence" and (fence := FENCE.match(line)):
        return fence.group()
    return OPENERS.get(token.type, "x")


def _label_of(token: Token) -> str:
    """Return what stands behind a fence, '' if it is a language alone or the token is no fence."""
    label = token.info.strip() if token.type == "fence" else ""
    return label if " " in label else ""


def _rows_of_code(console: Console, code: str, *, label: str) -> list[Row]:
    style = console.get_style("markdown.code_block")
    lines = code.removesuffix("\n").split("\n") if code else []
    rows = [_cleaned([Segment(line.expandtabs(TAB), style)]) for line in lines]
    return [_cleaned([Segment(label, console.get_style(LABEL))]), *rows] if label else rows


def _can_draw(tokens: Iterable[Token], width: int) -> bool:
    """Return whether nothing in a block is nested so deep, or in so many columns, that its text would be dropped."""
    indents: list[int] = []
    cells = 0
    for token in tokens:
        if token.nesting == 1:
            indents.append(_indent_of(token))
            cells = 0 if token.type == "tr_open" else cells + (token.type == "th_open")
        elif token.nesting == -1:
            indents.pop()
        columns = cells * (NARROWEST + AROUND_CELL) if token.type == "thead_close" else NARROWEST
        if sum(indents) + columns > width and (cells or any(indents)):
            return False
        if token.type in CONTAINERS and token.level > DEEPEST:
            return False
    return True


def _indent_of(token: Token) -> int:
    """Return how many columns a block takes from the blocks in it."""
    match token.type:
        case "blockquote_open":
            return len("▌ ")
        case "bullet_list_open":
            return len(" • ")
        case "ordered_list_open":
            return len(f" {token.attrs.get('start', 1):>2}  ")
        case _:
            return 0


def _cleaned(row: Iterable[Segment]) -> Row:
    """Return the row without control characters and without blanks at its end."""
    kept = [Segment(CONTROL.sub("", text.replace("\t", " ")), style) for text, style, _ in row]
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(" "), kept[-1].style)
    return kept


class _Heading(Heading):
    """Heading at the left side, without a frame."""

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield self.text


class _CodeBlock(CodeBlock):
    """Code within another block, without a background."""

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        self.text.rstrip()
        yield self.text


class _Fence(_CodeBlock):
    """Fenced code within another block, below what stands behind its fence."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_Fence":
        """Return the element of a fence."""
        fence = cls("text", markdown.code_theme)
        fence.label = _label_of(token)
        return fence

    label = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.label:
            yield Text(self.label, style=LABEL)
        yield from super().__rich_console__(console, options)


class _Table(TableElement):
    """Table whose long words are broken, not cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for drawing in super().__rich_console__(console, options):
            if isinstance(drawing, Table):
                for column in drawing.columns:
                    column.overflow = "fold"
            yield drawing


class _ListItem(ListItem):
    """List item whose number takes the same width wherever the list was cut."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        """Return the item with its number, in two columns at least."""
        del last_number
        return super().render_number(console, options, number, max(number, 10))


class _AnswerMarkdown(Markdown):
    """Markdown in which a line end in a paragraph stays one, and the title of a link stands behind its address."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Fence,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _PARSER.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
                if "title" in child.attrs:
                    child.attrs["href"] = f'{child.attrs["href"]} "{child.attrs["title"]}"'
