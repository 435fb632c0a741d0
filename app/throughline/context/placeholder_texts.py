"""Short texts that a prompt shows in place of hidden content: stubs of tool outputs, notes about hidden messages.

Each depends only on positions and sizes, so that it stays the same from prompt to prompt.
"""

from collections.abc import Collection
from dataclasses import dataclass

from throughline.domain.message import Content, ImageBlock, Message, text_of

SEARCH, READ, OUTPUT = "search_history", "read_history", "read_output"
RECALL_TOOLS = (SEARCH, READ, OUTPUT)
TAG = "quoted_history"
"""The tag around messages in a recall tool's result; the same tag inside a message is escaped."""


@dataclass(frozen=True, slots=True)
class RecallHints:
    """Sentences on how to look up hidden messages; each is '' if the agent has no tool for it.

    `output` goes into the stub of one tool output, `span` into a note on several messages, `summary` below a summary.
    """

    output: str = ""
    span: str = ""
    summary: str = ""

    def for_output(self, position: int) -> str:
        """Return the sentence on how to see the output at `position`, with a leading space; '' without such a tool."""
        return self.output.format(position=position)

    def for_span(self, first: int, last: int) -> str:
        """Return the sentence on how to see messages `first` to `last`, with a leading space; '' without a tool."""
        return self.span.format(first=first, last=last)


NO_HINTS = RecallHints()


def hints_for(tools: Collection[str]) -> RecallHints:
    """Return the hints for an agent with these tools. The same tools give the same bytes."""
    return RecallHints(output=_output_hint(tools), span=_span_hint(tools), summary=_summary_hint(tools))


def _output_hint(tools: Collection[str]) -> str:
    if OUTPUT in tools:
        return " read_output({position}) shows it."
    if READ in tools:
        return " read_history({position}, {position}) shows it."
    return " search_history finds words in it." if SEARCH in tools else ""


def _span_hint(tools: Collection[str]) -> str:
    shown = " read_history({first}, {last}) shows them." if READ in tools else ""
    return f"{shown} search_history finds words in them." if SEARCH in tools else shown


def _summary_hint(tools: Collection[str]) -> str:
    ways = {
        SEARCH: 'search_history("words") finds the messages that hold them',
        READ: "read_history(12, 40) shows the original messages of [#12-#40]",
        OUTPUT: "read_output(12) shows the tool output at #12 part by part",
    }
    known = [way for tool, way in ways.items() if tool in tools]
    if not known:
        return ""
    return f"All original messages are kept: {'; '.join(known)}. Look there before you say that something is not known."


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
