"""The view: what a prompt shows, made from the rows and the view state by one function, and always in the same way.

The stages choose a further view state; nothing but `show` turns one into messages. So what a stage did stays done,
and a prompt made again from the same rows has the same bytes. All tokens here are our own counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.assemble import build_prompt_messages, build_system
from throughline.context.context_input import ContextInput
from throughline.context.measure import REPLY_TOKENS, count_message, count_system, tokens_of
from throughline.context.message_list import MessageList, pinned_positions
from throughline.context.repair_messages import OPENING, is_valid, repair_messages
from throughline.context.shrink_message import NOTHING
from throughline.context.truncate_text import truncate_middle
from throughline.context.view_state import ViewState
from throughline.domain.message import Role
from throughline.domain.prompt import Prompt, PromptMessage


@dataclass(frozen=True, slots=True)
class View:
    """A prompt with its counts: `counts` runs beside `messages`.

    `current` is the user's message that is being answered, as it is shown (None at rest). `pinned` holds the
    positions that no stage may touch but the last ones.
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
        """The tokens of all but the messages."""
        return self.system_tokens + self.context_input.tools_tokens + REPLY_TOKENS

    @property
    def message_tokens(self) -> int:
        """The tokens of the messages, notes included."""
        return sum(self.counts)

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt."""
        return self.fixed_tokens + self.message_tokens

    @property
    def unreduced_tokens(self) -> int:
        """The tokens of a prompt that shows all rows as they are stored: the whole conversation since the cursor."""
        context_input = self.context_input
        said = (
            *context_input.kept_early,
            *context_input.rows,
            *(() if context_input.user is None else (context_input.user,)),
        )
        return self.fixed_tokens + sum(tokens_of(row, context_input.counter_name, context_input.count) for row in said)

    @property
    def prompt(self) -> Prompt:
        """The prompt itself."""
        return build_prompt_messages(
            self.context_input.system_prompt,
            self.messages,
            summary=self.summary,
            summarized_count=self.context_input.summary_through_position,
            tool_instructions=_tool_instructions(self.context_input, self.summary),
        )

    @property
    def current_index(self) -> int:
        """Where the user's current message stands; at rest, where the last group begins: it is what is answered."""
        if self.current is not None:
            return next(index for index, message in enumerate(self.messages) if message is self.current)
        heads = [index for index, message in enumerate(self.messages) if message.role is not Role.TOOL]
        return heads[-1] if heads else 0


def show(context_input: ContextInput, state: ViewState) -> View:
    """Return the prompt that `state` makes of the rows, valid for strict providers; nothing is fitted here."""
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
    """Return how to look up what the summary stands for; without one, nothing has to be looked up."""
    return context_input.recall.summary if summary.strip() else ""


def _summary_text(context_input: ContextInput, state: ViewState) -> str:
    if state.summary_to_tokens is None or not context_input.summary:
        return context_input.summary
    return truncate_middle(context_input.summary, state.summary_to_tokens, context_input.count, " of the summary")


def _repaired(listing: MessageList) -> tuple[list[PromptMessage], list[int], PromptMessage | None]:
    """Repair the messages; only those that changed are counted anew."""
    known = {id(message): tokens for message, tokens in zip(listing.messages, listing.counts, strict=True)}
    opening, count = NOTHING if listing.state.without_notes else OPENING, listing.context_input.count
    repaired = repair_messages(listing.messages, opening)
    tokens = [known[id(message)] if id(message) in known else count_message(message, count) for message in repaired]
    return list(repaired), tokens, _current_in(repaired, listing.current)


def _current_in(repaired: Sequence[PromptMessage], current: PromptMessage | None) -> PromptMessage | None:
    """The user's message may have got a placeholder for its text: it is found by its place then."""
    if current is None:
        return None
    for message in reversed(repaired):
        if message is current or (message.role is Role.USER and message.position == current.position):
            return message
    return None
