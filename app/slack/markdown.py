"""A model's Markdown as Slack shows it, and where it may be cut.

Slack's own reading of Markdown: https://docs.slack.dev/reference/block-kit/blocks/markdown-block/ .

Tables become aligned text in a code block, images become their address, which nobody fetches, and whatever would ring
for people or link to a user or a channel loses its effect. The rest Slack understands as it is. What `as_slack` makes
of the beginning of a text, up to `settled`, is the beginning of what it makes of the whole: an answer can grow.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

FENCE = "```"
_FENCE_LINE = re.compile(r"^ {0,3}(```|~~~)")
_CONTROL = re.compile(r"<(?=!(?:channel|here|everyone|group|subteam|date)|@[A-Z0-9]+|#[A-Z0-9]+)")
_TARGET = r"\]\((?:\s*+<?([^)\s>]++)>?[^)\n]*+\)|[^)\n]*+(?![^\n]))"
"""A target, or what is left of a line without a closing bracket: no link can begin in it, so none is looked for."""
_IMAGE = re.compile(rf"!\[([^\[\]\n]*+){_TARGET}")
_LINK = re.compile(rf"(?<!!)\[([^\[\]\n]*+){_TARGET}")
_CODE = re.compile(r"(`++[^`\n]++`++|`{2,}+)")
_SEPARATOR = re.compile(r"^\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+$")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
_LINKABLE = ("http://", "https://", "mailto:")
_UNDECIDED = re.compile(r"[\[\]<>!|`*_~#]")
ZERO_WIDTH_SPACE = "\N{ZERO WIDTH SPACE}"


def as_slack(text: str) -> str:
    """Return Markdown for Slack's `markdown_text`."""
    return "".join(_blocks(text.splitlines(keepends=True)))


def settled(text: str) -> int:
    """Return how much of a growing text no further text can make look otherwise.

    That is whole lines, but for a table that may go on, and of the last line what is plain words.
    """
    whole = text.rfind("\n") + 1
    lines = text[:whole].splitlines(keepends=True)
    if _is_fence_open(lines):
        return whole
    at = whole
    while lines and _is_row(lines[-1]):
        at -= len(lines.pop())
    return at + _plain_words(text[at:]) if at == whole else at


def _plain_words(line: str) -> int:
    """Return the length of what the unfinished line begins with that is words and will stay so."""
    end = line.rfind(" ") + 1
    is_plain = not _UNDECIDED.search(line[:end]) and not line.lstrip().startswith(("-", "+", ">"))
    return end if is_plain else 0


def is_in_fence(text: str, at: int) -> bool:
    """Whether position `at` stands inside a code block."""
    return _is_fence_open(text[:at].splitlines(keepends=True))


def part_of(text: str, start: int, end: int) -> str:
    """Return a piece of a text to stand alone: a code block that is cut is closed, and opened again in the next."""
    piece = text[start:end]
    if is_in_fence(text, start):
        piece = f"{FENCE}\n{piece}"
    return piece + closing(text, end)


def closing(text: str, end: int) -> str:
    """Return what has to follow where a text is cut at `end`: the end of a code block, or nothing."""
    if not is_in_fence(text, end):
        return ""
    return FENCE if text[:end].endswith("\n") else f"\n{FENCE}"


def cut_before(text: str, start: int, limit: int) -> int:
    """Return where to cut so that the piece from `start` has at most `limit` characters.

    Behind a paragraph if that leaves more than half, else behind a line, else behind a word.
    """
    end = start + limit
    if end >= len(text):
        return len(text)
    for separator in ("\n\n", "\n", " "):
        found = text.rfind(separator, start + limit // 2, end)
        if found >= 0:
            return found + len(separator)
    return end


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    at, in_fence = 0, False
    while at < len(lines):
        line = lines[at]
        if _FENCE_LINE.match(line):
            in_fence = not in_fence
            yield line.replace("~~~", FENCE, 1)
        elif in_fence:
            yield _harmless(line)
        elif _is_table(lines, at):
            rows = _rows(lines, at)
            yield _table(rows)
            at += len(rows) - 1
        else:
            yield _inline(line)
        at += 1


def _is_table(lines: Sequence[str], at: int) -> bool:
    return _is_row(lines[at]) and at + 1 < len(lines) and bool(_SEPARATOR.match(lines[at + 1]))


def _is_row(line: str) -> bool:
    return line.lstrip().startswith("|")


def _rows(lines: Sequence[str], at: int) -> list[str]:
    end = at
    while end < len(lines) and _is_row(lines[end]):
        end += 1
    return list(lines[at:end])


def _table(rows: Sequence[str]) -> str:
    cells = _rectangle([_cells(row) for row in (rows[0], *rows[2:])])
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(_padded, row, widths)).rstrip() for row in cells]
    rule = "  ".join("-" * width for width in widths)
    ending = "\n" if rows[-1].endswith("\n") else ""
    return "\n".join([FENCE, lines[0], rule, *lines[1:], FENCE]) + ending


def _rectangle(cells: Sequence[list[str]]) -> list[list[str]]:
    """Return rows of one length, the short ones filled up."""
    count = max(len(row) for row in cells)
    return [row + [""] * (count - len(row)) for row in cells]


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|").removesuffix("|")
    return [_harmless(cell.strip().replace("\\|", "|").replace("`", "")) for cell in _BETWEEN_CELLS.split(inner)]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _inline(line: str) -> str:
    pieces = _CODE.split(line)
    return "".join(_harmless(piece) if _CODE.fullmatch(piece) else _shown(piece) for piece in pieces)


def _shown(text: str) -> str:
    return _harmless(_LINK.sub(_link, _IMAGE.sub(_image, text)))


def _image(found: re.Match[str]) -> str:
    return f"{found[1] or 'image'} (`{found[2]}`)" if found[2] else found[0]


def _link(found: re.Match[str]) -> str:
    is_shown = not found[2] or found[2].lower().startswith(_LINKABLE)
    return found[0] if is_shown else found[1]


def _harmless(text: str) -> str:
    return _CONTROL.sub(f"<{ZERO_WIDTH_SPACE}", text)


def _is_fence_open(lines: Sequence[str]) -> bool:
    return sum(1 for line in lines if _FENCE_LINE.match(line)) % 2 == 1
