"""Input of planning a prompt and of fitting it to the window: one immutable value, made from the data of one query."""

from dataclasses import dataclass

from throughline.context.budget import Budget
from throughline.context.measure import Count
from throughline.context.policy import ContextPolicy
from throughline.context.view.placeholder_texts import NO_HINTS, RecallHints
from throughline.context.view.view_state import NEW_VIEW, ViewState
from throughline.domain.message import Message, NewMessage, Role
from throughline.domain.summary import Prepared


@dataclass(frozen=True, slots=True)
class ContextInput:
    """Everything that planning and fitting need about one session and agent.

    - `summary` covers the messages up to `summary_through_position` (the cursor).
    - `history` holds messages of other runs, oldest first, and `own` those of this run. Of both only messages after the
      cursor are shown, and the run's user message in any case.
    - `pinned`: pinned messages that are in neither of them.
    - `user`: the user's message while it is not stored yet.
    - `tools_tokens`, `summary_tokens` and `count` are our counts; multiplied by `factor` they are the model's.
    - `model_key`: the model that the view state must have been made for.
    - `cap_tokens` (our count): set after a refusal; the prompt must be smaller than this.
    - `recall`: sentences that explain to the model how to look up hidden messages.
    """

    policy: ContextPolicy
    budget: Budget
    factor: float
    system_prompt: str
    tools_tokens: int
    summary: str
    summary_tokens: int
    summary_through_position: int
    history: tuple[Message, ...]
    own: tuple[Message, ...]
    user: NewMessage | None
    count: Count
    counter_name: str
    pinned: tuple[Message, ...] = ()
    view_state: ViewState = NEW_VIEW
    prepared: Prepared | None = None
    model_key: str = ""
    cap_tokens: int | None = None
    recall: RecallHints = NO_HINTS

    @property
    def rows(self) -> tuple[Message, ...]:
        """The stored messages after the cursor, oldest first."""
        return (*after(self.history, self.summary_through_position), *after(self.own, self.summary_through_position))

    @property
    def has_gap(self) -> bool:
        """Whether messages after the cursor were not loaded, so that neither prompt nor summary contains them."""
        first = next(iter(self.rows[:1]), None)
        return first is not None and first.position > self.summary_through_position + 1

    @property
    def current(self) -> Message | None:
        """The stored user message of the running turn; None between turns and before the message is stored."""
        return next((message for message in self.own if message.role is Role.USER), None)

    @property
    def current_behind_cursor(self) -> Message | None:
        """The running turn's user message if it is already summarised; the prompt shows it nevertheless."""
        current = self.current
        return current if current is not None and current.position <= self.summary_through_position else None

    @property
    def shown_before_cursor(self) -> tuple[Message, ...]:
        """The messages from outside `rows` that the prompt shows first, in order.

        They are pinned messages, and the running turn's user message if it is already summarised.
        """
        behind = self.current_behind_cursor
        if behind is None:
            return tuple(sorted(self.pinned, key=lambda row: row.position))
        others = (row for row in self.pinned if row.position != behind.position)
        return tuple(sorted((*others, behind), key=lambda row: row.position))


def after(messages: tuple[Message, ...], position: int) -> tuple[Message, ...]:
    """Return the messages after `position`; the same tuple object if these are all."""
    if not messages or messages[0].position > position:
        return messages
    return tuple(message for message in messages if message.position > position)
