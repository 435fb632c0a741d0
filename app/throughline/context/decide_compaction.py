"""The one decision about compaction: none, adopt the prepared summary, write one now, or write one in the background.

`plan` asks for it before every model call, and whoever executes it only looks at the decision's action.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from throughline.context.calibration import scale
from throughline.context.choose_cut import Cut
from throughline.context.compaction_cut import (
    WORTHWHILE_SHARE,
    background_cut,
    frame_tokens,
    generous_target_tokens,
    replaces_enough,
    row_tokens,
    summary_tokens,
    tokens_gone,
    worthwhile_cut,
)
from throughline.context.compaction_triggers import (
    AHEAD_SHARE,
    GROWTH_SHARE,
    CompactionTrigger,
    count_trigger,
    critical_tokens,
    is_near_threshold,
    is_summarising,
    summarised_through,
)
from throughline.context.context_input import ContextInput
from throughline.context.groups import cut_points
from throughline.context.message_list import hidden_through
from throughline.context.policy import Adopt
from throughline.context.view import View
from throughline.domain.message import Message, Role
from throughline.domain.summary import Prepared


class CompactionAction(Enum):
    """What is done about a further summary: nothing, or one of three ways to have it."""

    NONE = "none"
    ADOPT = "adopt"
    WRITE_NOW = "write_now"
    WRITE_IN_BACKGROUND = "write_in_background"


@dataclass(frozen=True, slots=True)
class CompactionAllowance:
    """What a turn may still do: write a summary while it waits, and compact although the agent's hook cancelled it."""

    may_write: bool = True
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class CompactionDecision:
    """What is done now, what triggered it, and the messages the summary is for.

    `trigger` is None if no further summary is due now; a summary written ahead has none. `to_summarise` follows the
    cursor without a gap. It is empty with `must_load_first`: the messages to summarise first lie between the cursor and
    the loaded rows.
    """

    action: CompactionAction = CompactionAction.NONE
    trigger: CompactionTrigger | None = None
    through_position: int | None = None
    to_summarise: tuple[Message, ...] = ()
    must_load_first: bool = False

    @property
    def is_now(self) -> bool:
        """Whether this very call has a summary adopted or written."""
        return self.action in {CompactionAction.ADOPT, CompactionAction.WRITE_NOW}


ALL_ALLOWED, NOTHING_DUE = CompactionAllowance(), CompactionDecision()


def decide_compaction(
    view: View, triggers: Sequence[CompactionTrigger], allowance: CompactionAllowance = ALL_ALLOWED
) -> CompactionDecision:
    """Decide for the first of `triggers` that a further summary can be had for; a manual one works for any agent."""
    for trigger in triggers:
        if trigger is CompactionTrigger.MANUAL or is_summarising(view.context_input):
            decision = _decide_for(view, trigger)
            if decision.trigger is not None:
                return _allowed(view, decision, allowance)
    return NOTHING_DUE


def decide_ahead(view: View) -> CompactionDecision:
    """Decide whether a summary that is only near is written during a tool loop, whose later calls may need it."""
    has_called = any(row.role is Role.TOOL for row in view.context_input.own)
    if has_called and background_trigger(view) is not None:
        return CompactionDecision(CompactionAction.WRITE_IN_BACKGROUND)
    return NOTHING_DUE


def _decide_for(view: View, trigger: CompactionTrigger) -> CompactionDecision:
    """Return the decision for one trigger; NOTHING_DUE if a summary cannot be had, or is not worth it."""
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
    """Whether the model call waits for the summary: it was asked for, or else the prompt would be cut.

    No call waits for messages that have to be loaded first, also where the provider refused the prompt: to read them
    takes longer than anybody should wait, and the newest ones fit without them.
    """
    if trigger is CompactionTrigger.MANUAL:
        return True
    is_cut = trigger is CompactionTrigger.OVERFLOW or view.tokens > critical_tokens(view.context_input)
    return is_cut and not view.context_input.has_gap


def _allowed(view: View, decision: CompactionDecision, allowance: CompactionAllowance) -> CompactionDecision:
    """Return the decision with no action where the turn may not take it."""
    fits = scale(view.tokens, view.context_input.factor) <= view.context_input.budget.budget_tokens
    is_cancelled = decision.is_now and allowance.is_cancelled and fits
    is_too_late = decision.action is CompactionAction.WRITE_NOW and not allowance.may_write
    return replace(decision, action=CompactionAction.NONE) if is_cancelled or is_too_late else decision


def background_trigger(view: View) -> CompactionTrigger | None:
    """Return why the next summary should be written in the background now, None where it need not or cannot be.

    It stands for what may be cut beyond the newest summary, prepared or adopted.
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
    """Whether a summary of these rows is worth writing now; one more is worth it where the prepared one does little."""
    context_input = view.context_input
    freed = tokens_gone(view, row_tokens(view), first, end)
    has_room = context_input.prepared is not None and _leaves_room(
        context_input, _tokens_once_adopted(view, context_input.prepared)
    )
    return (
        scale(freed, context_input.factor)
        >= (GROWTH_SHARE if has_room else AHEAD_SHARE) * context_input.budget.window_tokens
    )


def _should_adopt(view: View, prepared: Prepared, trigger: CompactionTrigger, cut: Cut | None) -> bool:
    """Whether the prepared summary is to be used, though a `cut` of now would reach further.

    It costs the turn no time: where it leaves little room, another one is written only if that frees a lot more.
    """
    context_input, through = view.context_input, prepared.through_position
    if through <= context_input.summary_through_position or not _is_legal(context_input.rows, through):
        return False
    if trigger in {CompactionTrigger.MESSAGES, CompactionTrigger.TOKENS}:
        return True
    if (
        scale(view.tokens, context_input.factor) <= context_input.budget.threshold_tokens
    ):  # room is not wanted: something is unread
        return through >= hidden_through(context_input, view.state)
    after_tokens = _tokens_once_adopted(view, prepared)
    if _leaves_room(context_input, after_tokens):
        return True
    freed = view.tokens - after_tokens
    more = 0 if cut is None else cut.freed_tokens - freed
    is_enough = scale(freed, context_input.factor) >= WORTHWHILE_SHARE * context_input.budget.window_tokens
    return is_enough and scale(more, context_input.factor) < AHEAD_SHARE * context_input.budget.window_tokens


def _leaves_room(context_input: ContextInput, after_tokens: int) -> bool:
    """Whether a prompt of so many tokens, by our count, is well below the threshold."""
    return scale(after_tokens, context_input.factor) <= generous_target_tokens(context_input)


def _tokens_once_adopted(view: View, prepared: Prepared) -> int:
    """Return what the prompt would take, by our count, with the prepared summary."""
    context_input = view.context_input
    end = sum(row.position <= prepared.through_position for row in context_input.rows)
    gone = tokens_gone(view, row_tokens(view), 0, end)
    return view.tokens - gone - summary_tokens(view) + prepared.token_count + frame_tokens(context_input)


def _is_legal(rows: tuple[Message, ...], through: int) -> bool:
    if not rows or through < rows[0].position or through == rows[-1].position:
        return bool(rows) and through <= rows[-1].position
    return any(point.through_position == through for point in cut_points(rows))
