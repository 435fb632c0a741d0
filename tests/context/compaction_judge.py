"""What judging a compaction needs: how much it freed, and whether its time had come."""

from context.play import STAGES
from context.step import Step
from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.compaction.compaction_triggers import has_hidden_messages, is_summarising
from throughline.context.measure import tokens_of
from throughline.context.view.groups import OPENING
from throughline.context.view.view import View
from throughline.domain.message import NewMessage

GROWTH = 0.20
AHEAD = 0.10
FREED = 0.05


def is_just_restored(step: Step) -> bool:
    """Whether less was said since a restore than a compaction has to wait for."""
    context_input = step.plan.view.context_input
    restored = context_input.view_state.restored_at_position
    said = [row for row in (*context_input.rows, context_input.user) if row is not None]
    tokens = sum(
        tokens_of(row, context_input.counter_name, context_input.count)
        for row in said
        if isinstance(row, NewMessage) or row.position > restored
    )
    is_little = scale(tokens, context_input.factor) < GROWTH * context_input.budget.window_tokens
    return restored > 0 and is_little and is_summarising(context_input)


def had_room(step: Step) -> bool:
    """Whether the compaction before left some room below the threshold: being over it then means to have grown."""
    context_input = step.plan.view.context_input
    most = context_input.budget.threshold_tokens - AHEAD * context_input.budget.window_tokens
    return step.grown_from is not None and scale(step.grown_from, context_input.factor) <= most


def has_freed(step: Step) -> bool:
    """Whether adopting freed some share of the window; where it wants no room, what nobody had read is behind it."""
    context_input, compacted = step.plan.view.context_input, step.compacted
    if compacted is None or step.plan.tokens <= context_input.budget.threshold_tokens:
        return compacted is not None and not has_hidden_messages(compacted.context_input)
    freed = step.plan.raw_tokens - compacted.tokens + opening_tokens(compacted)
    return scale(freed, context_input.factor) >= FREED * context_input.budget.window_tokens


def frees_a_lot(step: Step) -> bool:
    """Whether as much is freed as has to grow: by a stage, or by a summary of full size for what is summarised."""
    view = step.plan.view
    if STAGES & set(step.plan.fired):
        freed = step.plan.tokens_before - step.plan.tokens + 1  # both are rounded
        return freed >= GROWTH * view.context_input.budget.window_tokens
    context_input, chosen = view.context_input, {row.position for row in step.plan.decision.to_summarise} - view.pinned
    shown = zip(view.messages, view.counts, strict=True)
    freed = sum(tokens for message, tokens in shown if message.position in chosen and message is not view.current)
    full = unscale(summary_limit(context_input.policy.summary, context_input.budget), context_input.factor)
    return (
        scale(freed - full + context_input.count(context_input.summary), context_input.factor)
        >= GROWTH * context_input.budget.window_tokens
    )


def opening_tokens(view: View) -> int:
    """Return what the line takes that opens a conversation cut inside a turn; no plan of a cut counts it."""
    return view.counts[0] if view.messages and view.messages[0].content == OPENING else 0
