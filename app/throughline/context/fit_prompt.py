"""The last stages: they turn any conversation into a prompt that fits the budget.

Called before every model call. While the prompt fits, it shows what the view state says, so that each prompt begins
with the bytes of the one before. Otherwise the stages shorten it in their order, and leave room for the next steps.
"""

from dataclasses import dataclass, replace

from throughline.context.calibration import scale, unscale
from throughline.context.compaction_triggers import critical_tokens
from throughline.context.context_input import ContextInput
from throughline.context.measure import tokens_of
from throughline.context.message_list import hidden_through
from throughline.context.message_variants import ShownMessage, list_variants
from throughline.context.stages.last_stages import HARD_STAGES, OLDEST_TRIMMED, SOFT_STAGES, Stage
from throughline.context.stages.trim_groups import Goal, drop_hidden_entries
from throughline.context.view import View, show
from throughline.context.view_state import ViewState
from throughline.domain.errors import PromptCannotFit
from throughline.domain.prompt import Prompt

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


def fit_view(view: View) -> FittedPrompt:
    """Return the prompt for one model call from a view that is already made. See `fit_prompt`."""
    context_input, fired = view.context_input, []
    edge = hidden_through(context_input, view.state)
    if edge > max(view.state.trimmed_through_position, context_input.summary_through_position):
        state = replace(view.state, stage=OLDEST_TRIMMED, trimmed_through_position=_settled_edge(context_input, edge))
        view = show(context_input, state)
        fired.append(OLDEST_TRIMMED)
    goal, critical = _marks(context_input)
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


def _marks(context_input: ContextInput) -> tuple[Goal, int]:
    """Return the goal of the stages, and the token count above which they run, both by our count."""
    limit = unscale(context_input.budget.budget_tokens, context_input.factor)
    if context_input.cap_tokens is not None:
        limit = min(limit, context_input.cap_tokens)
    room = unscale(int(ROOM_SHARE * context_input.budget.window_tokens), context_input.factor)
    goal = Goal(limit=limit, aim=max(limit - room, int(LEAST_AIM_SHARE * limit)))
    return goal, critical_tokens(context_input)


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
