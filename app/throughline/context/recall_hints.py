"""Sentences in the prompt that explain to the model how to look up hidden messages with the agent's recall tools."""

from collections.abc import Collection
from dataclasses import dataclass

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
