"""Short texts that a prompt shows in place of hidden content: stubs of tool outputs, notes about hidden messages.

Each depends only on positions and sizes, so that it stays the same from prompt to prompt.
"""

from throughline.context.recall_hints import RecallHints
from throughline.domain.message import Content, ImageBlock, Message, text_of

NAME_CHARACTERS = 48
STUB_WORTH_TOKENS = 80
"""A tool output with fewer tokens is never replaced by a stub: the stub would take about half as many."""

_WIDEST = 9_999_999


def stub(row: Message, recall: RecallHints) -> str:
    """Return the text shown for an old tool output: tool, size, position, and how to see the output again."""
    return _stub_text(row.name or "tool", row.position, _size(row.content), recall)


def widest_stub(name: str, recall: RecallHints) -> str:
    """Return a stub of the tool that is at least as long as any other, to be counted once for all of them."""
    return _stub_text(name, _WIDEST, _WIDEST, recall)


def trim_note(first: int, last: int, recall: RecallHints) -> str:
    """Return the note for the messages `first` to `last`, of which all or some are hidden."""
    return f"[Earlier messages {span(first, last)} are not shown here.{recall.for_span(first, last)}]"


def left_out_note(first: int, last: int, number: int, recall: RecallHints) -> str:
    """Return the note for `number` hidden messages somewhere between `first` and `last`."""
    hint = recall.for_span(first, last)
    return f"[{number} less important messages between {span(first, last)} are not shown here.{hint}]"


def fold_note(first: int, last: int, recall: RecallHints) -> str:
    """Return the note that stands for the messages `first` to `last`: tool calls and their results."""
    return (
        f"[Steps {span(first, last)} of this turn are folded: {last - first + 1} messages, tool calls and their "
        f"results.{recall.for_span(first, last)}]"
    )


def span(first: int, last: int) -> str:
    """Return a range of positions in the form of a citation, such as `#3-#7`."""
    return f"#{first}" if first == last else f"#{first}-#{last}"


def _stub_text(name: str, position: int, size: int, recall: RecallHints) -> str:
    hint = recall.for_output(position)
    return f"[Output of {name[:NAME_CHARACTERS]} at #{position}, {size:,} characters, not shown.{hint}]"


def _size(content: Content) -> int:
    """Return the characters of the text; an image counts by the length of its URL, all that is stored of it."""
    if isinstance(content, str):
        return len(content)
    return len(text_of(content)) + sum(len(block.url) for block in content if isinstance(block, ImageBlock))
