"""How each stored message appears in a prompt (whole, pruned, truncated, folded, summarised, trimmed), and why.

The preview shows it to users.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from throughline.context.measure import tokens_of
from throughline.context.message_list import hidden_through
from throughline.context.placeholder_texts import STUB_WORTH_TOKENS
from throughline.context.view import View
from throughline.context.view_state import range_at
from throughline.domain.message import Content, ImageBlock, Message, Role
from throughline.domain.prompt import PromptMessage
from throughline.domain.text import is_blank


class MessageVariant(StrEnum):
    """How a stored message appears in one prompt."""

    WHOLE = "whole"
    PRUNED = "pruned"
    TRUNCATED = "truncated"
    FOLDED = "folded"
    SUMMARISED = "summarised"
    TRIMMED = "trimmed"
    LEFT_OUT = "left_out"
    """Cannot be sent: a result without a call, a second result, an empty answer."""


REASONS = {
    MessageVariant.WHOLE: "shown as stored",
    MessageVariant.PRUNED: "an old tool output, shown as a stub",
    MessageVariant.TRUNCATED: "too big: shown by its head and tail",
    MessageVariant.FOLDED: "a step of a long turn, folded into one line",
    MessageVariant.SUMMARISED: "the summary stands for it",
    MessageVariant.TRIMMED: "left out to make room",
    MessageVariant.LEFT_OUT: "cannot be sent: a result without a call, a second result, or an empty answer",
}


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """How one stored message appears in a prompt, and its tokens by our count (0 if it is not shown).

    `score` is its importance by the strategy `importance`, 0 to 1; None without that strategy or without a score.
    """

    position: int
    role: Role
    form: MessageVariant
    tokens: int
    pinned: bool = False
    score: float | None = None

    def summarised(self) -> "ShownMessage":
        """Return the message as one that a summary is about to replace."""
        return replace(self, form=MessageVariant.SUMMARISED, tokens=0)

    @property
    def reason(self) -> str:
        """Why the message appears in this form."""
        return "pinned: always shown" if self.pinned and self.form is MessageVariant.WHOLE else REASONS[self.form]


def list_variants(view: View) -> tuple[ShownMessage, ...]:
    """Return how each loaded message appears in the prompt, in the order of positions.

    Of the messages up to the cursor, only pins and the running turn's user message are listed.
    """
    by_position = {
        message.position: (message, tokens)
        for message, tokens in zip(view.messages, view.counts, strict=True)
        if message.position is not None
    }
    edge = hidden_through(view.context_input, view.state)
    found = []
    for row in (*view.context_input.shown_before_cursor, *view.context_input.rows):
        message, tokens = by_position.get(row.position, (None, 0))
        form = _hidden_form(view, row, edge) if message is None else _form(view, row, message)
        pinned = row.pinned or row.position in view.pinned
        found.append(ShownMessage(row.position, row.role, form, tokens, pinned=pinned))
    return tuple(found)


def _hidden_form(view: View, row: Message, edge: int) -> MessageVariant:
    if row.position <= view.context_input.summary_through_position:
        return MessageVariant.SUMMARISED
    if row.position <= edge or view.state.is_left_out(row.position):
        return MessageVariant.TRIMMED
    if range_at(view.state.folded, row.position) is not None:
        return MessageVariant.FOLDED
    return MessageVariant.LEFT_OUT


def _form(view: View, row: Message, shown: PromptMessage) -> MessageVariant:
    """Compare the shown message with the stored one; a placeholder for an empty text counts as whole."""
    arguments = [call.arguments for call in shown.tool_calls]
    is_same = row.role is Role.USER or arguments == [call.arguments for call in row.tool_calls]
    if is_same and (shown.content == row.content or shown.content == _sendable(row.content, shown.content)):
        return MessageVariant.WHOLE
    return MessageVariant.PRUNED if _is_stub(view, row) else MessageVariant.TRUNCATED


def _is_stub(view: View, row: Message) -> bool:
    """Return whether a stored tool output is shown as a stub."""
    is_pruned = row.role is Role.TOOL and row.position <= view.state.pruned_through_position
    if not is_pruned or row.position in view.pinned:
        return False
    return tokens_of(row, view.context_input.counter_name, view.context_input.count) > STUB_WORTH_TOKENS


def _sendable(content: Content, placeholder: Content) -> Content:
    """Return the content without its blank parts, which no provider accepts; the placeholder if nothing remains."""
    if isinstance(content, str):
        return placeholder if is_blank(content) else content
    return tuple(block for block in content if isinstance(block, ImageBlock) or not is_blank(block.text)) or placeholder
