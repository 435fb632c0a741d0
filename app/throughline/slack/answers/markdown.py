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
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from urllib.parse import urlsplit

from throughline.context.markdown import CodeSpan, Fence, Kind, MarkdownLine, read, spans

# The text of one line in Slack's Markdown, with its links and images. Nothing in it notifies people, and no link
# misleads about its target.

ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"
MASK = "\0"
"""Placeholder for a code span while the text around it is processed. No text contains it, see domain/message.py."""

_CONTROL_IN_CODE = re.compile(
    r"<(?=!(?:channel|here|everyone|group)\b|!(?:subteam|date)\^|@[UW][A-Z0-9]{7,}+[>|]|#[CG][A-Z0-9]{7,}+[>|])"
)
_CONTROL = re.compile(
    r"(?i:<(?P<address>(?:https?://|mailto:)[^\s<>|]++)>"
    r"|(?P<sign><|&(?:lt|#0*+60|#x0*+3c);)(?=[\\!@#&]|[a-z][a-z0-9+.\-]*+:(?!:)))"
)
"""Text that Slack could take for a control sequence, which must not keep its `<`.

Addresses in angle brackets are matched as well, because they are kept.
"""

_BROADCAST = re.compile(r"(?i:(?<![a-z0-9.@/])@(?=(?:channel|here|everyone|group)(?![a-z0-9])))")
_TARGET = r"\]\((?:\s*+<?([^)\s>]++)>?[^)\n]*+\)|[^)\n]*+(?![^\n]))"
"""A link's target, or the rest of a line without a closing bracket: no link can begin in that rest."""

_LINK = re.compile(rf"(?<!\\)(!?+)\[([^\[\]\n]*+){_TARGET}|\](?=\()|!(?=\[)")
_DEFINITION = re.compile(r"^[ \t>]*+\[[^\[\]\n]++\](?=:)")
_LINKABLE = ("http://", "https://", "mailto:")
_HOST = re.compile(r"(?i:(?<![a-z0-9.\-])(?:[a-z0-9\-]++\.)++[a-z]{2,}+(?![a-z0-9.\-]))")
_FILE_ENDINGS = (
    *(".cfg", ".cpp", ".cs", ".css", ".csv", ".go", ".html", ".ini", ".java", ".js", ".json", ".log", ".md", ".pdf"),
    *(".php", ".py", ".rb", ".rs", ".sh", ".sql", ".toml", ".ts", ".txt", ".xml", ".yaml", ".yml"),
)
"""File endings. Names such as `README.md` or `Node.js` do not count as hosts, though hosts may end so, too."""
_BOLD = re.compile(r"\*\*(?=[^*\s])([^*]++)(?<!\s)\*\*")


def inline(line: str) -> str:
    """Return a line or a table cell in Slack's Markdown."""
    found, _ = spans(line)
    return _joined_marks(line, found)


def inline_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of one paragraph in Slack's Markdown.

    A line may leave a code span open, which could end in any later line. Nothing after such a line is treated as code.
    """
    is_open = False
    for line in lines:
        is_open = is_open and bool(line.strip())
        found, leaves_open = spans(line)
        yield _joined_marks(line, () if is_open else found)
        is_open = is_open or leaves_open


def harmless_code(text: str) -> str:
    """Return code unchanged, except for sequences that notify or link to a user or channel even in code."""
    return _CONTROL_IN_CODE.sub(f"<{ZERO_WIDTH_SPACE}", text)


def plain(cell: str) -> str:
    """Return the text of a cell without Markdown: no marks, and links with their addresses."""
    found, _ = spans(cell)
    words = _BOLD.sub(r"\1", _LINK.sub(_written_out, _masked(cell, found)))
    return harmless_code(_unmasked(words, [cell[span.start : span.end].strip("`") for span in found]))


def _joined_marks(line: str, found: Sequence[CodeSpan]) -> str:
    codes = [line[span.start : span.end] for span in found]
    shown = _Links(codes).read(_masked(line, found))
    shown = _CONTROL.sub(_without_control, _DEFINITION.sub(_broken, shown))
    return _unmasked(_BROADCAST.sub(f"@{ZERO_WIDTH_SPACE}", shown), [harmless_code(code) for code in codes])


def _masked(line: str, found: Sequence[CodeSpan]) -> str:
    """Return the line with one placeholder for each code span."""
    pieces, at = list[str](), 0
    for span in found:
        pieces.append(line[at : span.start].replace(MASK, "\N{REPLACEMENT CHARACTER}"))
        at = span.end
    pieces.append(line[at:].replace(MASK, "\N{REPLACEMENT CHARACTER}"))
    return MASK.join(pieces)


def _unmasked(text: str, codes: Sequence[str]) -> str:
    words = text.split(MASK)
    return "".join(piece for pair in zip_longest(words, codes, fillvalue="") for piece in pair)


class _Links:
    """Conversion of the links in a masked line, from its beginning to its end."""

    def __init__(self, codes: Sequence[str]) -> None:
        """Convert links in a line whose masked code spans are `codes`."""
        self._codes = codes
        self._at = self._passed = 0

    def read(self, masked: str) -> str:
        """Return the line with its links as they may be shown."""
        return _LINK.sub(self._shown, masked)

    def _shown(self, found: re.Match[str]) -> str:
        """Return a link or image of the line as it may be shown.

        An image becomes its description and its address as text. A link whose label misleads about its target is
        written out. A link whose scheme is not http, https or mailto loses its effect.
        """
        label, target = found[2], found[3]
        if label is None:
            return _broken(found)
        if not target:
            return found[0]
        if found[1]:
            return f"{label or 'image'} (`{target.replace('`', '')}`)"
        if not target.lower().startswith(_LINKABLE):
            return found[0].replace("](", f"]{ZERO_WIDTH_SPACE}(", 1)
        return f"{label} ({target})" if _misleads(self._words_of(found), target) else found[0]

    def _words_of(self, found: re.Match[str]) -> str:
        """Return the label with its code spans. Code spans before the label are counted on from the previous call."""
        self._passed += found.string.count(MASK, self._at, found.start())
        self._at = found.start()
        return _unmasked(found[2], self._codes[self._passed : self._passed + found[2].count(MASK)])


def _misleads(label: str, target: str) -> bool:
    """Return whether the label names a host that is not the target's host."""
    host = _host_of(target)
    named = (name.lower() for name in _HOST.findall(label))
    return any(not f".{host}".endswith(f".{name}") and not name.endswith(_FILE_ENDINGS) for name in named)


def _host_of(target: str) -> str:
    try:
        parts = urlsplit(target)
    except ValueError:  # an incomplete IPv6 address
        return ""
    return (parts.hostname or parts.path.rpartition("@")[2]).lower()


def _written_out(found: re.Match[str]) -> str:
    return f"{found[2]} ({found[3]})" if found[3] else found[0]


def _broken(found: re.Match[str]) -> str:
    return found[0] + ZERO_WIDTH_SPACE


def _without_control(found: re.Match[str]) -> str:
    return found[0] if found["address"] else found["sign"] + ZERO_WIDTH_SPACE


# Tables, which Slack's Markdown lacks: aligned text in a code block, or a list if that would be too wide. Tables whose
# rows do not begin with `|` stay unchanged, because their first line looks like a sentence while it grows.

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


def _may_look_otherwise(line: MarkdownLine, fence: Fence | None) -> bool:
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


def _blocks(lines: Sequence[MarkdownLine]) -> Iterator[str]:
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


def _is_table(lines: Sequence[MarkdownLine], at: int) -> bool:
    head = lines[at : at + 2]
    return len(head) > 1 and all(map(_is_row, head)) and is_separator(head[1].text)


def _is_row(line: MarkdownLine) -> bool:
    return line.kind is Kind.TEXT and is_row(line.text)


def _rows(lines: Sequence[MarkdownLine], at: int) -> list[str]:
    end = at
    while end < len(lines) and _is_row(lines[end]):
        end += 1
    return [line.text for line in lines[at:end]]


def _words(lines: Sequence[MarkdownLine], at: int) -> list[str]:
    """Return the lines up to the next table or code block, at least one."""
    end = at + 1
    while end < len(lines) and lines[end].kind is Kind.TEXT and not _is_table(lines, end):
        end += 1
    return [line.text for line in lines[at:end]]


def _block(lines: Sequence[MarkdownLine], at: int) -> Sequence[MarkdownLine]:
    """Return the lines of the code block that begins at `at`, including its last line."""
    end = at + 1
    while end < len(lines) and lines[end].kind is not Kind.OPENING and lines[end].fence is not None:
        end += 1
    return lines[at:end]


def _code_block(lines: Sequence[MarkdownLine]) -> Iterator[str]:
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


def _length(fence: Fence, lines: Sequence[MarkdownLine]) -> int:
    """Return the number of backticks for the block's fence, such that no line inside ends the block.

    A fence that consists of backticks keeps its length.
    """
    if fence.sign == "`":
        return fence.length
    inside = map(_TICKS_AT_START.match, (fence.first, *(line.code for line in lines[1:])))
    return max([fence.length, *(len(found[1]) + 1 for found in inside if found)])


def _ending(line: str) -> str:
    return "\n" if line.endswith("\n") else ""
