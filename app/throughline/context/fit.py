"""The last ladder: turns a conversation into a prompt that fits the budget, whatever is in it.

Called before every model call. While everything fits, everything is shown as the view state says, so that each prompt
begins with the one before; only then do the rungs take something away, in their order, and leave room to go on in.
"""

from dataclasses import dataclass, replace

from throughline.context.calibration import scale, unscale
from throughline.context.context_input import ContextInput
from throughline.context.forms import ShownMessage, shown_messages
from throughline.context.ladder.rungs import HARD_RUNGS, OLDEST_TRIMMED, SOFT_RUNGS, Rung
from throughline.context.ladder.trimming import Goal, forgetful
from throughline.context.listing import hidden_through
from throughline.context.measure import tokens_of
from throughline.context.triggers import critical_tokens
from throughline.context.view import View, show
from throughline.context.view_state import ViewState
from throughline.domain.errors import PromptCannotFit
from throughline.domain.prompt import Prompt

ROOM_SHARE = 0.20
"""A rung that fires leaves room for this share of the window, where what it may take away allows it."""

LEAST_AIM_SHARE = 0.5
GAP_WINDOWS = 1.0
"""Where rows were not loaded, what is shown begins within so many windows: the edge then moves rarely."""

SHARE_EACH = 0.25
"""One message counts at most this share of the window there, as where rows are loaded: it can be shown shorter."""


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt within the budget.

    `raw_tokens` is our count of it, tools included; `tokens` is that times the factor. `notes` names the rungs that
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
        return scale(self.view.unreduced_tokens, self.view.inp.factor)

    @property
    def shown(self) -> tuple[ShownMessage, ...]:
        """What became of every loaded message."""
        return shown_messages(self.view)

    @property
    def view_state(self) -> ViewState:
        """What has been done to the view, to be kept with the session."""
        return self.view.state


def fit_prompt(inp: ContextInput) -> FittedPrompt:
    """Return the prompt for one model call, valid for strict providers and never over the budget.

    Raises PromptCannotFit only where system prompt and tools alone leave no room for a message.
    """
    return fit_view(show(inp, inp.view_state))


def fit_view(view: View) -> FittedPrompt:
    """Do the same with a view that is made already."""
    inp, fired = view.inp, []
    edge = hidden_through(inp, view.state)
    if edge > max(view.state.trimmed_through_position, inp.summary_through_position):
        state = replace(view.state, rung=OLDEST_TRIMMED, trimmed_through_position=_settled_edge(inp, edge))
        view = show(inp, state)
        fired.append(OLDEST_TRIMMED)
    goal, critical = _marks(inp)
    if view.tokens > critical:
        view = _climb(view, goal, fired)
    if fired:
        view = forgetful(view)
    return FittedPrompt(
        prompt=view.prompt,
        tokens=scale(view.tokens, inp.factor),
        raw_tokens=view.tokens,
        notes=tuple(dict.fromkeys(fired)),
        view=view,
    )


def _marks(inp: ContextInput) -> tuple[Goal, int]:
    """Return the goal and the mark above which the ladder is climbed, by our count."""
    limit = unscale(inp.budget.budget_tokens, inp.factor)
    if inp.cap_tokens is not None:
        limit = min(limit, inp.cap_tokens)
    room = unscale(int(ROOM_SHARE * inp.budget.window_tokens), inp.factor)
    goal = Goal(limit=limit, aim=max(limit - room, int(LEAST_AIM_SHARE * limit)))
    return goal, critical_tokens(inp)


def _climb(view: View, goal: Goal, fired: list[str]) -> View:
    for name, rung in SOFT_RUNGS:
        if view.tokens <= goal.aim:
            return view
        view = _stepped(view, goal, name, rung, fired)
    for name, rung in HARD_RUNGS:
        if view.tokens <= goal.limit:
            return view
        view = _stepped(view, goal, name, rung, fired)
    if view.tokens > goal.limit:
        raise PromptCannotFit(_no_room(view))
    return view


def _stepped(view: View, goal: Goal, name: str, rung: Rung, fired: list[str]) -> View:
    state = rung(view, goal)
    if state == view.state:
        return view
    fired.append(name)
    return show(view.inp, replace(state, rung=name))


def _settled_edge(inp: ContextInput, edge: int) -> int:
    """Return how far back a view begins whose older rows were not loaded: not at the very edge, which moves on."""
    room = unscale(int(GAP_WINDOWS * inp.budget.window_tokens), inp.factor)
    most_each = unscale(int(SHARE_EACH * inp.budget.window_tokens), inp.factor)
    last = inp.current.position - 1 if inp.current is not None else None
    for row in reversed(inp.rows):
        room -= min(tokens_of(row, inp.counter_name, inp.count), most_each)
        if room < 0:
            through = row.position if last is None else min(row.position, last)
            return max(through, edge)
    return edge


def _no_room(view: View) -> str:
    inp = view.inp
    return (
        f"the smallest possible prompt takes {scale(view.tokens, inp.factor)} tokens and only "
        f"{inp.budget.budget_tokens} of the window of {inp.budget.window_tokens} may be used: "
        "shorten the system prompt, name fewer tools, or use a model with a larger window"
    )
