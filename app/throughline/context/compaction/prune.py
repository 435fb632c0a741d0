"""Pruning: old tool outputs are replaced by stubs, all at once and only if that frees a real share of the window.

An output that no model call has seen yet is never pruned: the next call would have to request it again.
"""

from dataclasses import replace

from throughline.context.calibration import scale
from throughline.context.view.context_input import ContextInput
from throughline.context.view.view import View, show
from throughline.domain.message import Role

PRUNED, PRUNED_AGGRESSIVELY = "pruned", "pruned_aggressively"


MARK_CAP = 0.95
"""Upper limit of the size above which tool outputs are pruned, as a share of the budget."""


def prune(view: View) -> tuple[View, tuple[str, ...]]:
    """Return the view after up to two prunes, as its usage requires, and the names of those that were done."""
    policy, fired = view.context_input.policy.prune, []
    for name, mark, keep_last in (
        (PRUNED, policy.start, policy.keep_last),
        (PRUNED_AGGRESSIVELY, policy.aggressive, policy.keep_last_aggressive),
    ):
        if scale(view.tokens, view.context_input.factor) <= stage_mark(view.context_input, mark):
            break
        pruned = _pruned(view, keep_last, name)
        if pruned is not view:
            view = pruned
            fired.append(name)
    return view, tuple(fired)


def stage_mark(context_input: ContextInput, share: float) -> float:
    """Return the number of tokens, in the model's count, above which a prune begins.

    It is `share` of the window, but never more than MARK_CAP of the budget.
    """
    return min(share * context_input.budget.window_tokens, MARK_CAP * context_input.budget.budget_tokens)


def _pruned(view: View, keep_last: int, name: str) -> View:
    outputs = sorted(
        message.position
        for message in view.messages
        if message.role is Role.TOOL and message.position is not None and message.position not in view.pinned
    )
    answered = _answered_through(view.context_input)
    old = [position for position in outputs[: max(len(outputs) - keep_last, 0)] if position < answered]
    if not old or old[-1] <= view.state.pruned_through_position:
        return view
    state = replace(view.state, stage=name, pruned_through_position=old[-1], keep_last=keep_last)
    pruned = show(view.context_input, state)
    freed = scale(view.tokens - pruned.tokens, view.context_input.factor)
    return (
        pruned if freed >= view.context_input.policy.prune.min_freed * view.context_input.budget.window_tokens else view
    )


def _answered_through(context_input: ContextInput) -> int:
    """Return the position of the newest answer; no model call has seen the messages after it."""
    return next((row.position for row in reversed(context_input.rows) if row.role is Role.ASSISTANT), 0)
