"""The view: what a prompt shows, made from the stored messages and the view state by the function `show`.

The stages of a compaction only choose a new view state; `show` alone turns it into messages. So the effect of a stage
lasts, and a prompt made again from the same rows has the same bytes. All tokens here are our own counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from throughline.context.calibration import scale
from throughline.context.measure import REPLY_TOKENS, count_message, count_system, tokens_of
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import OPENING, build_prompt_messages, build_system, is_valid, repair_messages
from throughline.context.view.message_list import MessageList, pinned_positions
from throughline.context.view.shrink_message import NOTHING, truncate_middle
from throughline.context.view.view_state import ViewState, after_compaction
from throughline.domain.message import Role
from throughline.domain.prompt import Prompt, PromptMessage


@dataclass(frozen=True, slots=True)
class View:
    """The content of a prompt with its token counts; `counts[i]` belongs to `messages[i]`.

    `current` is the user's message that this turn answers, in the form the prompt shows; None between turns. `pinned`
    holds the positions of messages that only the last stages may change.
    """

    context_input: ContextInput
    state: ViewState
    summary: str
    system: str
    system_tokens: int
    messages: tuple[PromptMessage, ...]
    counts: tuple[int, ...]
    current: PromptMessage | None
    pinned: frozenset[int]

    @property
    def fixed_tokens(self) -> int:
        """The tokens of everything in the prompt except the messages."""
        return self.system_tokens + self.context_input.tools_tokens + REPLY_TOKENS

    @property
    def message_tokens(self) -> int:
        """The tokens of the messages, including notes about hidden ones."""
        return sum(self.counts)

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt."""
        return self.fixed_tokens + self.message_tokens

    @property
    def model_tokens(self) -> int:
        """The tokens of the whole prompt as the model counts them."""
        return scale(self.tokens, self.context_input.factor)

    @property
    def unreduced_tokens(self) -> int:
        """The tokens of a prompt that would show all messages after the cursor as they are stored."""
        context_input = self.context_input
        said = (
            *context_input.shown_before_cursor,
            *context_input.rows,
            *(() if context_input.user is None else (context_input.user,)),
        )
        return self.fixed_tokens + sum(tokens_of(row, context_input.counter_name, context_input.count) for row in said)

    @property
    def prompt(self) -> Prompt:
        """The prompt to send to the model."""
        return build_prompt_messages(
            self.context_input.system_prompt,
            self.messages,
            summary=self.summary,
            summarized_count=self.context_input.summary_through_position,
            tool_instructions=_tool_instructions(self.context_input, self.summary),
        )

    @property
    def current_index(self) -> int:
        """The index of the user's current message; between turns, the index of the last group's first message."""
        if self.current is not None:
            return next(index for index, message in enumerate(self.messages) if message is self.current)
        heads = [index for index, message in enumerate(self.messages) if message.role is not Role.TOOL]
        return heads[-1] if heads else 0


def show(context_input: ContextInput, state: ViewState) -> View:
    """Return the view that `state` makes of the stored messages, valid for strict providers.

    Nothing is fitted to the budget here.
    """
    summary = _summary_text(context_input, state)
    instructions = _tool_instructions(context_input, summary)
    system = build_system(context_input.system_prompt, summary, context_input.summary_through_position, instructions)
    pinned = frozenset() if state.without_pins else pinned_positions(context_input)
    listing = MessageList(context_input, state, pinned)
    listing.list_all()
    messages, counts, current = listing.messages, listing.counts, listing.current
    if not is_valid(messages):
        messages, counts, current = _repaired(listing)
    return View(
        context_input=context_input,
        state=state,
        summary=summary,
        system=system,
        system_tokens=count_system(system, context_input.count),
        messages=tuple(messages),
        counts=tuple(counts),
        current=current,
        pinned=pinned,
    )


def _tool_instructions(context_input: ContextInput, summary: str) -> str:
    """Return how to look up messages behind the summary; '' without a summary, as nothing is hidden then."""
    return context_input.recall.summary if summary.strip() else ""


def _summary_text(context_input: ContextInput, state: ViewState) -> str:
    if state.summary_to_tokens is None or not context_input.summary:
        return context_input.summary
    return truncate_middle(context_input.summary, state.summary_to_tokens, context_input.count, " of the summary")


def _repaired(listing: MessageList) -> tuple[list[PromptMessage], list[int], PromptMessage | None]:
    """Repair the messages for strict providers; count only the changed ones again."""
    known = {id(message): tokens for message, tokens in zip(listing.messages, listing.counts, strict=True)}
    opening, count = NOTHING if listing.state.without_notes else OPENING, listing.context_input.count
    repaired = repair_messages(listing.messages, opening)
    tokens = [known[id(message)] if id(message) in known else count_message(message, count) for message in repaired]
    return list(repaired), tokens, _current_in(repaired, listing.current)


def _current_in(repaired: Sequence[PromptMessage], current: PromptMessage | None) -> PromptMessage | None:
    """Return the user's current message among the repaired ones; None between turns.

    Repairing may have given it a placeholder for an empty text; it is then found by its position.
    """
    if current is None:
        return None
    for message in reversed(repaired):
        if message is current or (message.role is Role.USER and message.position == current.position):
            return message
    return None


def kept_state(view: View) -> ViewState:
    """Return the view state to store with the session after a stage, with the factor in force.

    If the prompt is now smaller than after the last compaction, growth is measured from the smaller size.
    """
    state, before = view.state, view.state.compacted_to_tokens
    smaller = None if before is None else min(before, view.tokens)
    return replace(state, factor=view.context_input.factor, compacted_to_tokens=smaller)


def waiting_for_growth(view: View) -> View:
    """Return the view after a summary that was not worth writing: the triggers count from the newest message on."""
    rows = view.context_input.rows
    newest = rows[-1].position if rows else view.state.skipped_through_position
    state = replace(view.state, compacted_to_tokens=view.tokens, skipped_through_position=newest)
    return replace(view, state=state)


def next_view(context_input: ContextInput) -> View:
    """Return the view with a newly adopted summary; its size becomes the base from which growth is measured."""
    view = show(context_input, after_compaction(context_input.view_state, 0))
    return replace(view, state=after_compaction(view.state, view.tokens))
