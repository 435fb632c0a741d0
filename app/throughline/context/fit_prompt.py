"""The last ladder: turns a conversation into a prompt that fits the budget, whatever is in it.

Called before every model call. While everything fits, everything is shown as the view state says, so that each prompt
begins with the one before; only then do the stages take something away, in their order, and leave room to go on in.
"""

from dataclasses import dataclass, replace

from throughline.context.calibration import scale, unscale
from throughline.context.compaction_triggers import critical_tokens
from throughline.context.context_input import ContextInput
from throughline.context.measure import tokens_of
from throughline.context.message_list import hidden_through
from throughline.context.message_variants import ShownMessage, list_variants
from throughline.context.stages.last_stages import HARD_STAGES, OLDEST_TRIMMED, SOFT_STAGES, Stage
from throughline.context.stages.trim_groups import Goal, forgetful
from throughline.context.view import View, show
from throughline.context.view_state import ViewState
from throughline.domain.errors import PromptCannotFit
from throughline.domain.prompt import Prompt

ROOM_SHARE = 0.20
"""A stage that fires leaves room for this share of the window, where what it may take away allows it."""

LEAST_AIM_SHARE = 0.5
GAP_WINDOWS = 1.0
"""Where rows were not loaded, what is shown begins within so many windows: the edge then moves rarely."""

SHARE_EACH = 0.25
"""One message counts at most this share of the window there, as where rows are loaded: it can be shown shorter."""


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt within the budget.

    `raw_tokens` is our count of it, tools included; `tokens` is that times the factor. `notes` names the stages that
    fired, in order; `view_state` is what they left, and `view` shows it.
    """

    prompt: Prompt
    tokens: int
    raw_tokens: int
    notes: tuple[str, ...]
    view: View

    @property
    def unreduced_tokens(self) -> int:
        """What the whole conversation since the cursor would take, as it is stored; in the model's tokens."""
        return scale(self.view.unreduced_tokens, self.view.context_input.factor)

    @property
    def shown(self) -> tuple[ShownMessage, ...]:
        """What became of every loaded message."""
        return list_variants(self.view)

    @property
    def view_state(self) -> ViewState:
        """What has been done to the view, to be kept with the session."""
        return self.view.state


def fit_prompt(context_input: ContextInput) -> FittedPrompt:
    """Return the prompt for one model call, valid for strict providers and never over the budget.

    Raises PromptCannotFit only where system prompt and tools alone leave no room for a message.
    """
    return fit_view(show(context_input, context_input.view_state))


def fit_view(view: View) -> FittedPrompt:
    """Do the same with a view that is made already."""
    context_input, fired = view.context_input, []
    edge = hidden_through(context_input, view.state)
    if edge > max(view.state.trimmed_through_position, context_input.summary_through_position):
        state = replace(view.state, stage=OLDEST_TRIMMED, trimmed_through_position=_settled_edge(context_input, edge))
        view = show(context_input, state)
        fired.append(OLDEST_TRIMMED)
    goal, critical = _marks(context_input)
    if view.tokens > critical:
        view = _climb(view, goal, fired)
    if fired:
        view = forgetful(view)
    return FittedPrompt(
        prompt=view.prompt,
        tokens=scale(view.tokens, context_input.factor),
        raw_tokens=view.tokens,
        notes=tuple(dict.fromkeys(fired)),
        view=view,
    )


def _marks(context_input: ContextInput) -> tuple[Goal, int]:
    """Return the goal and the mark above which the ladder is climbed, by our count."""
    limit = unscale(context_input.budget.budget_tokens, context_input.factor)
    if context_input.cap_tokens is not None:
        limit = min(limit, context_input.cap_tokens)
    room = unscale(int(ROOM_SHARE * context_input.budget.window_tokens), context_input.factor)
    goal = Goal(limit=limit, aim=max(limit - room, int(LEAST_AIM_SHARE * limit)))
    return goal, critical_tokens(context_input)


def _climb(view: View, goal: Goal, fired: list[str]) -> View:
    for name, stage in SOFT_STAGES:
        if view.tokens <= goal.aim:
            return view
        view = _stepped(view, goal, name, stage, fired)
    for name, stage in HARD_STAGES:
        if view.tokens <= goal.limit:
            return view
        view = _stepped(view, goal, name, stage, fired)
    if view.tokens > goal.limit:
        raise PromptCannotFit(_no_room(view))
    return view


def _stepped(view: View, goal: Goal, name: str, stage: Stage, fired: list[str]) -> View:
    state = stage(view, goal)
    if state == view.state:
        return view
    fired.append(name)
    return show(view.context_input, replace(state, stage=name))


def _settled_edge(context_input: ContextInput, edge: int) -> int:
    """Return how far back a view begins whose older rows were not loaded: not at the very edge, which moves on."""
    room = unscale(int(GAP_WINDOWS * context_input.budget.window_tokens), context_input.factor)
    most_each = unscale(int(SHARE_EACH * context_input.budget.window_tokens), context_input.factor)
    last = context_input.current.position - 1 if context_input.current is not None else None
    for row in reversed(context_input.rows):
        room -= min(tokens_of(row, context_input.counter_name, context_input.count), most_each)
        if room < 0:
            through = row.position if last is None else min(row.position, last)
            return max(through, edge)
    return edge


def _no_room(view: View) -> str:
    context_input = view.context_input
    return (
        f"the smallest possible prompt takes {scale(view.tokens, context_input.factor)} tokens and only "
        f"{context_input.budget.budget_tokens} of the window of {context_input.budget.window_tokens} may be used: "
        "shorten the system prompt, name fewer tools, or use a model with a larger window"
    )
