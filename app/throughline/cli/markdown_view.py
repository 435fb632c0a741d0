"""Drawing of Markdown at a terminal, block by block, in rows that are wrapped between words.

Answers use it. Nothing in a text becomes a control character: entities and link targets could bring them back after
`printable` has removed them, so every row is cleaned once more. No links of the terminal (OSC 8) are written: the
address stands behind its text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.theme import Theme

from throughline.cli.printable import CONTROL

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
LISTS = frozenset({"bullet_list_open", "ordered_list_open"})

# What the drawing would drop stays text: HTML, definitions of links, pictures, and addresses in angle brackets.
_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["strikethrough", "table"])
    .disable(["reference", "image", "autolink"])
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Markdown: a paragraph, a heading, one item of a list, a table, code and so on.

    `lines` are its lines with their ends. `continues`: no blank line comes before it. `code` is what fenced code
    contains, None for all other blocks.
    """

    lines: tuple[str, ...]
    continues: bool = False
    code: str | None = None


def blocks_of(text: str) -> tuple[Block, ...]:
    """Return the blocks of a text, which can be drawn one by one. Nested blocks belong to the outermost one."""
    tokens = _PARSER.parse(text)
    starts = [
        (token, token.map[0], token.type == "list_item_open" and before.type not in LISTS)
        for before, token in pairwise((Token("", "", 0), *tokens))
        if token.map and _starts_block(token)
    ]
    if not starts:
        return ()
    *whole, rest = text.split("\n")
    lines = (*(f"{line}\n" for line in whole), rest)
    begins = [line for _, line, _ in starts]
    ends = [*begins[1:], len(lines)]
    return tuple(
        Block(lines[begin:end], continues=is_next_item, code=token.content if token.type == "fence" else None)
        for (token, _, is_next_item), begin, end in zip(starts, begins, ends, strict=True)
    )


def rows_of(console: Console, block: Block, *, width: int) -> list[Row]:
    """Return the rows of a block, without blank ones around them. Lines of fenced code are not broken."""
    if block.code is not None:
        style = console.get_style("markdown.code_block")
        lines = block.code.removesuffix("\n").split("\n") if block.code else []
        return [_cleaned([Segment(line.expandtabs(TAB), style)]) for line in lines]
    segments = console.render(_AnswerMarkdown("".join(block.lines)), console.options.update(width=width))
    rows = [_cleaned(row) for row in Segment.split_lines(segments)]
    while rows and not rows[-1]:
        rows.pop()
    return rows[next((n for n, row in enumerate(rows) if row), 0) :]


def _starts_block(token: Token) -> bool:
    """Return whether the token opens an outermost block. Each item of an outermost list is one."""
    if token.type in LISTS:
        return False
    return token.nesting >= 0 and token.level == (1 if token.type == "list_item_open" else 0)


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


class _ListItem(ListItem):
    """List item whose number takes the same width wherever the list was cut."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        """Return the item with its number, in two columns at least."""
        del last_number
        return super().render_number(console, options, number, max(number, 10))


class _AnswerMarkdown(Markdown):
    """Markdown in which a line end in a paragraph stays one."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _PARSER.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
