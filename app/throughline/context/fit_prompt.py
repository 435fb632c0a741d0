"""The last stages: they turn any conversation into a prompt that fits the budget.

Called before every model call. While the prompt fits, it shows what the view state says, so that each prompt begins
with the bytes of the one before. Otherwise the stages shorten it in their order, and leave room for the next steps.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from throughline.context.calibration import scale, unscale
from throughline.context.compaction.compaction_triggers import critical_tokens
from throughline.context.compaction.last_stages import HARD_STAGES, OLDEST_TRIMMED, SOFT_STAGES, Stage
from throughline.context.compaction.strategy import Goal, drop_hidden_entries
from throughline.context.measure import tokens_of
from throughline.context.view.context_input import ContextInput
from throughline.context.view.message_list import hidden_through
from throughline.context.view.placeholder_texts import STUB_WORTH_TOKENS
from throughline.context.view.view import View, show
from throughline.context.view.view_state import ViewState, range_at
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import PromptCannotFit
from throughline.domain.message import Content, ImageBlock, Message, Role, is_blank
from throughline.domain.prompt import Prompt, PromptMessage

# How each stored message appears in a prompt (whole, pruned, truncated, folded, summarised, trimmed), and why.
#
# The preview shows it to users.


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
    MessageVariant.PRUNED: "an old tool output, replaced by a short note",
    MessageVariant.TRUNCATED: "too big: only its beginning and end are shown",
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
    id: MessageId | None = None

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
        found.append(ShownMessage(row.position, row.role, form, tokens, pinned=pinned, id=row.id))
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


ROOM_SHARE = 0.20
"""Share of the window that a stage tries to leave free once it runs, as far as the text it may remove allows."""

LEAST_AIM_SHARE = 0.5
GAP_WINDOWS = 1.0
"""If older messages were not loaded, the prompt shows only the newest messages within this many windows.

So its first message rarely changes.
"""

SHARE_EACH = 0.25
"""Most tokens that one message adds when GAP_WINDOWS is filled, as a share of the window.

A larger message can be shown shortened. The query that loads messages uses the same limit.
"""


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt within the budget.

    `raw_tokens` is our count of the prompt, tools included; `tokens` is that count times the factor. `notes` names the
    stages that ran, in order. `view` is the view after them.
    """

    prompt: Prompt
    tokens: int
    raw_tokens: int
    notes: tuple[str, ...]
    view: View

    @property
    def unreduced_tokens(self) -> int:
        """The model's tokens of a prompt that would show all messages after the cursor as they are stored."""
        return scale(self.view.unreduced_tokens, self.view.context_input.factor)

    @property
    def shown(self) -> tuple[ShownMessage, ...]:
        """How every loaded message appears in this prompt: whole, pruned, truncated, folded, summarised or left out."""
        return list_variants(self.view)

    @property
    def view_state(self) -> ViewState:
        """The view state after all stages, to be stored with the session."""
        return self.view.state


def fit_prompt(context_input: ContextInput) -> FittedPrompt:
    """Return the prompt for one model call, valid for strict providers and never over the budget.

    Raises PromptCannotFit only if system prompt and tools alone leave no room for a message.
    """
    return fit_view(show(context_input, context_input.view_state))


def fit_view(view: View, note_tokens: int = 0) -> FittedPrompt:
    """Return the prompt for one model call from a view that is already made. See `fit_prompt`.

    `note_tokens`, by our count, is what a note added later will take. Older messages make room for it, so that a note
    does not come and go between the calls of a turn.
    """
    context_input, fired = view.context_input, []
    edge = hidden_through(context_input, view.state)
    if edge > max(view.state.trimmed_through_position, context_input.summary_through_position):
        state = replace(view.state, stage=OLDEST_TRIMMED, trimmed_through_position=_settled_edge(context_input, edge))
        view = show(context_input, state)
        fired.append(OLDEST_TRIMMED)
    goal, critical = _marks(context_input, note_tokens)
    if view.tokens > critical:
        view = _run_stages(view, goal, fired)
    if fired:
        view = drop_hidden_entries(view)
    return FittedPrompt(
        prompt=view.prompt,
        tokens=scale(view.tokens, context_input.factor),
        raw_tokens=view.tokens,
        notes=tuple(dict.fromkeys(fired)),
        view=view,
    )


def _marks(context_input: ContextInput, note_tokens: int) -> tuple[Goal, int]:
    """Return the goal of the stages, and the token count above which they run, both by our count."""
    limit = unscale(context_input.budget.budget_tokens, context_input.factor)
    if context_input.cap_tokens is not None:
        limit = min(limit, context_input.cap_tokens)
    room = unscale(int(ROOM_SHARE * context_input.budget.window_tokens), context_input.factor)
    goal = Goal(limit=limit, aim=max(limit - room - note_tokens, int(LEAST_AIM_SHARE * limit)))
    return goal, critical_tokens(context_input) - note_tokens


def _run_stages(view: View, goal: Goal, fired: list[str]) -> View:
    for name, stage in SOFT_STAGES:
        if view.tokens <= goal.aim:
            return view
        view = _run_stage(view, goal, name, stage, fired)
    for name, stage in HARD_STAGES:
        if view.tokens <= goal.limit:
            return view
        view = _run_stage(view, goal, name, stage, fired)
    if view.tokens > goal.limit:
        raise PromptCannotFit(_cannot_fit(view))
    return view


def _run_stage(view: View, goal: Goal, name: str, stage: Stage, fired: list[str]) -> View:
    state = stage(view, goal)
    if state == view.state:
        return view
    fired.append(name)
    return show(view.context_input, replace(state, stage=name))


def _settled_edge(context_input: ContextInput, edge: int) -> int:
    """Return the position after which a view with unloaded older messages begins.

    It is not the edge of what is loaded: that edge would move with every new message.
    """
    room = unscale(int(GAP_WINDOWS * context_input.budget.window_tokens), context_input.factor)
    most_each = unscale(int(SHARE_EACH * context_input.budget.window_tokens), context_input.factor)
    last = context_input.current.position - 1 if context_input.current is not None else None
    for row in reversed(context_input.rows):
        room -= min(tokens_of(row, context_input.counter_name, context_input.count), most_each)
        if room < 0:
            through = row.position if last is None else min(row.position, last)
            return max(through, edge)
    return edge


def _cannot_fit(view: View) -> str:
    context_input = view.context_input
    return (
        f"the smallest possible prompt takes {scale(view.tokens, context_input.factor)} tokens and only "
        f"{context_input.budget.budget_tokens} of the window of {context_input.budget.window_tokens} may be used: "
        "shorten the system prompt, name fewer tools, or use a model with a larger window"
    )
