"""The plan for a model call: what to prune, whether to compact, and which messages a new summary covers.

It is called with the data of one query; `fit_prompt.py` then makes the prompt. The stages run in order: prune, prune
more, compact by the agent's strategy. Each runs only while the prompt is over that stage's threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from throughline.context.calibration import scale
from throughline.context.compaction.compaction_cut import minimum_tokens
from throughline.context.compaction.compaction_triggers import GROWTH_SHARE, CompactionTrigger, due_triggers
from throughline.context.compaction.decide_compaction import (
    CompactionAction,
    CompactionDecision,
    background_trigger,
    decide_ahead,
    decide_compaction,
)
from throughline.context.compaction.prune import prune
from throughline.context.compaction.strategy import STRATEGIES
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import cut_points
from throughline.context.view.view import View, show
from throughline.context.view.view_state import NEW_VIEW, ViewState, after_compaction
from throughline.domain.message import Message

FACTOR_BAND = 0.01
"""How far, as a share, the learned factor may fall below the factor in use before it replaces that one.

A learned factor above the one in use replaces it at once.
"""


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """What is to be done before the model is called.

    `tokens_before` and `tokens` are the prompt before and after the stages, in the model's tokens; `raw_tokens` is the
    latter by our count. `initial_view` is the view before any stage and `view` the view after them; `fired` names the
    stages that ran.
    """

    tokens_before: int
    tokens: int
    raw_tokens: int
    fired: tuple[str, ...]
    decision: CompactionDecision
    initial_view: View
    view: View

    @property
    def view_state(self) -> ViewState:
        """The view state after the planned stages."""
        return self.view.state

    @property
    def is_summary_due(self) -> bool:
        """Whether a summary written in the background now would save a later call from waiting for it."""
        if self.decision.trigger is not None:
            return self.decision.action is not CompactionAction.ADOPT
        return background_trigger(self.view) is not None

    @property
    def floor_too_high(self) -> bool:
        """Whether even the shortest prompt (pins, recent messages, a full summary) leaves too little room to grow."""
        return _is_floor_too_high(self.view)


def plan_context(context_input: ContextInput, *, forced: CompactionTrigger | None = None) -> ContextPlan:
    """Return the plan for one model call: the prompt after pruning and the agent's strategy, and what summary is due.

    `forced` (manual or overflow) compacts regardless of the triggers; manual summarises as many messages as possible.
    """
    context_input = with_effective_state(context_input)
    opened = show(context_input, context_input.view_state)
    view, fired = prune(opened)
    triggers = due_triggers(context_input, view.tokens) if forced is None else (forced,)
    if triggers and forced is not CompactionTrigger.MANUAL:
        view, reduced = STRATEGIES[context_input.policy.strategy](view)
        fired += reduced
    decision = decide_compaction(view, triggers)
    if decision.trigger is None and forced is None:
        decision = decide_ahead(view)
    return ContextPlan(
        tokens_before=opened.model_tokens,
        tokens=view.model_tokens,
        raw_tokens=view.tokens,
        fired=fired,
        decision=decision,
        initial_view=opened,
        view=view,
    )


def with_effective_state(context_input: ContextInput) -> ContextInput:
    """Return the input with the view state and the factor that are in force.

    - A state made for another model is replaced by a new one: that model's provider has cached nothing, and its window
      differs. A state without a model comes from a restore; it holds for any model while its summary is in use.
    - Changes to a summary's display end with that summary, also if a request or another process has replaced it.
    - Between stages the factor stays as it was, as long as it errs on the safe side and by little.
    """
    state, cursor = context_input.view_state, context_input.summary_through_position
    if state.model != context_input.model_key:
        begun = NEW_VIEW if state.model or state.summary_position not in {None, cursor} else state
        return replace(context_input, view_state=replace(begun, model=context_input.model_key, summary_position=cursor))
    if state.summary_position != cursor:
        if state.summary_position is not None:
            state = after_compaction(state, None)
        context_input = replace(context_input, view_state=replace(state, summary_position=cursor))
    frozen = state.factor
    if frozen is None or not context_input.factor <= frozen <= context_input.factor * (1 + FACTOR_BAND):
        return context_input
    return replace(context_input, factor=frozen)


def backlog(messages: Sequence[Message], through_position: int | None = None) -> tuple[Message, ...]:
    """Return the messages of a page that can be summarised: all before the page's last legal cut.

    It is used if messages between the cursor and the loaded rows must be read first (`must_load_first`). `messages` is
    the page that follows the cursor; nothing beyond `through_position`, the plan's, is returned. Empty if the page is
    one single group.
    """
    points = cut_points(messages)
    if through_position is not None:
        points = tuple(point for point in points if point.through_position <= through_position)
    return tuple(messages[: points[-1].index]) if points else ()


def _is_floor_too_high(view: View) -> bool:
    context_input = view.context_input
    room = context_input.budget.target_tokens - GROWTH_SHARE * context_input.budget.window_tokens
    return scale(minimum_tokens(view), context_input.factor) > room
