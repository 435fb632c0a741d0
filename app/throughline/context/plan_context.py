"""Deciding what is to happen before a model call: what is pruned, whether to compact, and what a summary stands for.

Called with what one query loaded; `fit` then makes the prompt of it. The steps are one ladder: prune,
prune more, compact by the agent's strategy, each only while the prompt is over the mark of that stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from throughline.context.calibration import scale
from throughline.context.compaction_cut import floor_tokens
from throughline.context.compaction_triggers import GROWTH_SHARE, CompactionTrigger, due_triggers
from throughline.context.context_input import ContextInput
from throughline.context.decide_compaction import (
    ALL_ALLOWED,
    CompactionAction,
    CompactionAllowance,
    CompactionDecision,
    background_trigger,
    decide_ahead,
    decide_compaction,
)
from throughline.context.groups import cut_points
from throughline.context.stages.prune import prune
from throughline.context.stages.strategy import STRATEGIES
from throughline.context.view import View, show
from throughline.context.view_state import NEW_VIEW, ViewState, after_compaction
from throughline.domain.message import Message

FACTOR_BAND = 0.01
"""The factor in force stays while the learned one is at most so much below it, and never while it is above it."""


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """What is to happen before the model is called.

    `tokens` is the prompt as it stands after pruning, in the model's tokens; `tokens_before` what it was. `opened` is
    the view as it was found; `fired` names what was done to it, and `view` is what it is now.
    """

    tokens_before: int
    tokens: int
    raw_tokens: int
    fired: tuple[str, ...]
    decision: CompactionDecision
    opened: View
    view: View

    @property
    def view_state(self) -> ViewState:
        """What has been done to the view so far."""
        return self.view.state

    @property
    def is_summary_due(self) -> bool:
        """Whether a summary written in the background would save a later call from waiting for it."""
        if self.decision.trigger is not None:
            return self.decision.action is not CompactionAction.ADOPT
        return background_trigger(self.view) is not None

    @property
    def floor_too_high(self) -> bool:
        """Whether even the shortest prompt (pins, recent messages, a full summary) leaves too little room to grow."""
        return _is_floor_too_high(self.view)


def plan_context(
    context_input: ContextInput,
    *,
    forced: CompactionTrigger | None = None,
    allowance: CompactionAllowance = ALL_ALLOWED,
) -> ContextPlan:
    """Measure the conversation, prune it, and decide about a further summary as far as `allowance` goes.

    `forced` (manual or overflow) compacts whatever the triggers say, a manual one as much as it may.
    """
    context_input = in_force(context_input)
    opened = show(context_input, context_input.view_state)
    view, fired = prune(opened)
    triggers = due_triggers(context_input, view.tokens) if forced is None else (forced,)
    if triggers and forced is not CompactionTrigger.MANUAL:
        view, reduced = STRATEGIES[context_input.policy.strategy](view)
        fired += reduced
    decision = decide_compaction(view, triggers, allowance)
    if decision.trigger is None and forced is None:
        decision = decide_ahead(view)
    return ContextPlan(
        tokens_before=scale(opened.tokens, context_input.factor),
        tokens=scale(view.tokens, context_input.factor),
        raw_tokens=view.tokens,
        fired=fired,
        decision=decision,
        opened=opened,
        view=view,
    )


def in_force(context_input: ContextInput) -> ContextInput:
    """Return the input with the view state and the factor that are in force.

    A state made for another model is begun anew: that model's provider has cached nothing, and its window differs.
    One without a model was left by a restore; it holds for whichever model comes, as long as its summary is in use.
    What was done to a summary ends with it, also where a wish or another process has put a further one in its place.
    Between stages the factor stays what it was as long as it errs on the safe side, and by little.
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
    """Return the part of a page of stored messages that can be summarised: all before its last legal cut.

    For `must_load_first`: `messages` is the page that follows the cursor, `through_position` the plan's, which is not
    passed. Empty where the page is one single group.
    """
    points = cut_points(messages)
    if through_position is not None:
        points = tuple(point for point in points if point.through_position <= through_position)
    return tuple(messages[: points[-1].index]) if points else ()


def _is_floor_too_high(view: View) -> bool:
    context_input = view.context_input
    room = context_input.budget.target_tokens - GROWTH_SHARE * context_input.budget.window_tokens
    return scale(floor_tokens(view), context_input.factor) > room
