"""What judging a compaction needs: how much it freed, and whether its time had come."""

from context.play import STAGES
from context.step import Step
from throughline.context.budget import summary_limit
from throughline.context.calibration import scale, unscale
from throughline.context.measure import tokens_of
from throughline.context.repair import OPENING
from throughline.context.triggers import has_unread, is_summarising
from throughline.context.view import View
from throughline.domain.message import NewMessage

GROWTH = 0.20
AHEAD = 0.10
FREED = 0.05


def is_just_restored(step: Step) -> bool:
    """Whether less was said since a restore than a compaction has to wait for."""
    inp = step.plan.view.inp
    restored = inp.view_state.restored_at_position
    said = [row for row in (*inp.rows, inp.user) if row is not None]
    tokens = sum(
        tokens_of(row, inp.counter_name, inp.count)
        for row in said
        if isinstance(row, NewMessage) or row.position > restored
    )
    is_little = scale(tokens, inp.factor) < GROWTH * inp.budget.window_tokens
    return restored > 0 and is_little and is_summarising(inp)


def had_room(step: Step) -> bool:
    """Whether the compaction before left some room below the threshold: being over it then means to have grown."""
    inp = step.plan.view.inp
    most = inp.budget.threshold_tokens - AHEAD * inp.budget.window_tokens
    return step.grown_from is not None and scale(step.grown_from, inp.factor) <= most


def has_freed(step: Step) -> bool:
    """Whether adopting freed some share of the window; where it wants no room, what nobody had read is behind it."""
    inp, compacted = step.plan.view.inp, step.compacted
    if compacted is None or step.plan.tokens <= inp.budget.threshold_tokens:
        return compacted is not None and not has_unread(compacted.inp)
    freed = step.plan.raw_tokens - compacted.tokens + opening_tokens(compacted)
    return scale(freed, inp.factor) >= FREED * inp.budget.window_tokens


def frees_a_lot(step: Step) -> bool:
    """Whether as much is freed as has to grow: by a stage, or by a summary of full size for what is summarised."""
    view = step.plan.view
    if STAGES & set(step.plan.fired):
        freed = step.plan.tokens_before - step.plan.tokens + 1  # both are rounded
        return freed >= GROWTH * view.inp.budget.window_tokens
    inp, chosen = view.inp, {row.position for row in step.plan.decision.to_summarise} - view.pinned
    shown = zip(view.messages, view.counts, strict=True)
    freed = sum(tokens for message, tokens in shown if message.position in chosen and message is not view.current)
    full = unscale(summary_limit(inp.policy.summary, inp.budget), inp.factor)
    return scale(freed - full + inp.count(inp.summary), inp.factor) >= GROWTH * inp.budget.window_tokens


def opening_tokens(view: View) -> int:
    """Return what the line takes that opens a conversation cut inside a turn; no plan of a cut counts it."""
    return view.counts[0] if view.messages and view.messages[0].content == OPENING else 0
