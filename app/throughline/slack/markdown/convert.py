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
from collections.abc import Iterator, Sequence

from throughline.context.markdown.fences import Fence, Kind, Line, read
from throughline.slack.markdown.inline import harmless_code, inline_lines
from throughline.slack.markdown.tables import is_row, is_separator, table

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
