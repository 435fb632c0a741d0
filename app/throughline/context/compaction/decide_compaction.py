"""The decision about compaction: none, adopt the prepared summary, write one now, or write one in the background.

`plan_context` makes it before every model call; the code that carries it out only reads the decision's action.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from throughline.context.calibration import scale
from throughline.context.compaction.compaction_cut import (
    WORTHWHILE_SHARE,
    Cut,
    background_cut,
    frame_tokens,
    replaces_enough,
    row_tokens,
    shown_summary_tokens,
    tokens_removed,
    tokens_with_headroom,
    worthwhile_cut,
)
from throughline.context.compaction.compaction_triggers import (
    AHEAD_SHARE,
    GROWTH_SHARE,
    CompactionTrigger,
    count_trigger,
    critical_tokens,
    is_near_threshold,
    is_summarising,
    summarised_through,
)
from throughline.context.policy import Adopt
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import cut_points
from throughline.context.view.message_list import hidden_through
from throughline.context.view.view import View
from throughline.domain.message import Message, Role
from throughline.domain.summary import Prepared


class CompactionAction(Enum):
    """What is done about a new summary: nothing, adopt the prepared one, write one now, or in the background."""

    NONE = "none"
    ADOPT = "adopt"
    WRITE_NOW = "write_now"
    WRITE_IN_BACKGROUND = "write_in_background"


@dataclass(frozen=True, slots=True)
class CompactionDecision:
    """What is done now about a new summary, its trigger, and the messages that it will cover.

    `trigger` is None if no new summary is due now, or if one is written ahead of need. `through_position` is the last
    message it will cover. `to_summarise` holds the messages to write it from, which follow the cursor without a gap; it
    is empty if a prepared summary is adopted. With `must_load_first` it is empty, too: the messages to summarise first
    lie between the cursor and the loaded rows.
    """

    action: CompactionAction = CompactionAction.NONE
    trigger: CompactionTrigger | None = None
    through_position: int | None = None
    to_summarise: tuple[Message, ...] = ()
    must_load_first: bool = False

    @property
    def is_now(self) -> bool:
        """Whether a summary is adopted or written before the model is called, and not in the background."""
        return self.action in {CompactionAction.ADOPT, CompactionAction.WRITE_NOW}


NOTHING_DUE = CompactionDecision()


def decide_compaction(view: View, triggers: Sequence[CompactionTrigger]) -> CompactionDecision:
    """Return the decision for the first of `triggers` for which a new summary is possible and worthwhile.

    A manual trigger works for every agent, the others only for agents that summarise automatically.
    NOTHING_DUE if no trigger leads to a summary.
    """
    for trigger in triggers:
        if trigger is CompactionTrigger.MANUAL or is_summarising(view.context_input):
            decision = _decide_for(view, trigger)
            if decision.trigger is not None:
                return decision
    return NOTHING_DUE


def decide_ahead(view: View) -> CompactionDecision:
    """Return the decision to write a summary in the background during a tool loop, because later calls may need it.

    NOTHING_DUE if no tool result is stored in this turn, or no summary is due.
    """
    has_called = any(row.role is Role.TOOL for row in view.context_input.own)
    if has_called and background_trigger(view) is not None:
        return CompactionDecision(CompactionAction.WRITE_IN_BACKGROUND)
    return NOTHING_DUE


def _decide_for(view: View, trigger: CompactionTrigger) -> CompactionDecision:
    """Return the decision for one trigger; NOTHING_DUE if a summary is impossible or not worthwhile."""
    context_input, prepared = view.context_input, view.context_input.prepared
    cut = worthwhile_cut(view, trigger)
    if prepared is not None and trigger is not CompactionTrigger.MANUAL and _should_adopt(view, prepared, trigger, cut):
        return CompactionDecision(CompactionAction.ADOPT, trigger, prepared.through_position)
    if cut is None:
        return NOTHING_DUE
    return CompactionDecision(
        CompactionAction.WRITE_NOW if _must_wait(view, trigger) else CompactionAction.WRITE_IN_BACKGROUND,
        trigger,
        cut.through_position,
        to_summarise=() if context_input.has_gap else context_input.rows[: cut.index],
        must_load_first=context_input.has_gap,
    )


def _must_wait(view: View, trigger: CompactionTrigger) -> bool:
    """Return whether the model call waits for the summary: it was requested, or else the prompt would be cut.

    No call waits for messages that have to be loaded first, even if the provider refused the prompt. Reading them takes
    too long, and the newest messages fit without them.
    """
    if trigger is CompactionTrigger.MANUAL:
        return True
    is_cut = trigger is CompactionTrigger.OVERFLOW or view.tokens > critical_tokens(view.context_input)
    return is_cut and not view.context_input.has_gap


def background_trigger(view: View) -> CompactionTrigger | None:
    """Return why to write the next summary in the background now; None if it is not needed or not possible.

    The summary would cover the messages after the newest one, prepared or adopted.
    """
    context_input = view.context_input
    if not is_summarising(context_input) or context_input.policy.adopt is not Adopt.AT_THRESHOLD:
        return None
    since = summarised_through(context_input)
    counted, is_near = count_trigger(context_input, since), is_near_threshold(context_input, view.tokens)
    if counted is None and not is_near:
        return None
    first, cut = sum(row.position <= since for row in context_input.rows), background_cut(view)
    if cut is None or cut.index <= first:
        return None
    if counted is not None and replaces_enough(context_input, counted, first, cut.index):
        return counted
    return CompactionTrigger.THRESHOLD if is_near and _frees_enough(view, first, cut.index) else None


def _frees_enough(view: View, first: int, end: int) -> bool:
    """Return whether a summary of these rows in the background frees enough tokens.

    More is required if the prepared summary would leave enough room when adopted.
    """
    context_input = view.context_input
    freed = tokens_removed(view, row_tokens(view), first, end)
    has_room = context_input.prepared is not None and _leaves_room(
        context_input, _tokens_once_adopted(view, context_input.prepared)
    )
    return (
        scale(freed, context_input.factor)
        >= (GROWTH_SHARE if has_room else AHEAD_SHARE) * context_input.budget.window_tokens
    )


def _should_adopt(view: View, prepared: Prepared, trigger: CompactionTrigger, cut: Cut | None) -> bool:
    """Return whether to use the prepared summary, although a new one up to `cut` would cover more messages.

    Adopting costs the turn no time. If it leaves little room, a new summary is written only if it frees far more.
    """
    context_input, through = view.context_input, prepared.through_position
    if through <= context_input.summary_through_position or not _is_legal(context_input.rows, through):
        return False
    if trigger in {CompactionTrigger.MESSAGES, CompactionTrigger.TOKENS}:
        return True
    # Below the threshold, the trigger is messages that are neither shown nor summarised.
    if scale(view.tokens, context_input.factor) <= context_input.budget.threshold_tokens:
        return through >= hidden_through(context_input, view.state)
    after_tokens = _tokens_once_adopted(view, prepared)
    if _leaves_room(context_input, after_tokens):
        return True
    freed = view.tokens - after_tokens
    more = 0 if cut is None else cut.freed_tokens - freed
    is_enough = scale(freed, context_input.factor) >= WORTHWHILE_SHARE * context_input.budget.window_tokens
    return is_enough and scale(more, context_input.factor) < AHEAD_SHARE * context_input.budget.window_tokens


def _leaves_room(context_input: ContextInput, after_tokens: int) -> bool:
    """Return whether a prompt of `after_tokens`, by our count, is well below the threshold."""
    return scale(after_tokens, context_input.factor) <= tokens_with_headroom(context_input)


def _tokens_once_adopted(view: View, prepared: Prepared) -> int:
    """Return our count of the prompt with the prepared summary in place of the messages it covers."""
    context_input = view.context_input
    end = sum(row.position <= prepared.through_position for row in context_input.rows)
    gone = tokens_removed(view, row_tokens(view), 0, end)
    return view.tokens - gone - shown_summary_tokens(view) + prepared.token_count + frame_tokens(context_input)


def _is_legal(rows: tuple[Message, ...], through: int) -> bool:
    if not rows or through < rows[0].position or through == rows[-1].position:
        return bool(rows) and through <= rows[-1].position
    return any(point.through_position == through for point in cut_points(rows))
