"""Pruning: old tool outputs are shown as stubs, all at once and only where that frees a real share of the window."""

from dataclasses import replace

from app.context.calibration import scale
from app.context.context_input import ContextInput
from app.context.view import View, show
from app.domain.message import Role

MARK_CAP = 0.95
"""No mark lies above this share of the budget."""


def prune(view: View) -> tuple[View, tuple[str, ...]]:
    """Return the view after the two prunes, as far as its usage asks for them, and the names of those that fired."""
    policy, fired = view.inp.policy.prune, []
    for name, mark, keep_last in (
        ("pruned", policy.start, policy.keep_last),
        ("pruned_aggressively", policy.aggressive, policy.keep_last_aggressive),
    ):
        if scale(view.tokens, view.inp.factor) <= stage_mark(view.inp, mark):
            break
        pruned = _pruned(view, keep_last, name)
        if pruned is not view:
            view = pruned
            fired.append(name)
    return view, tuple(fired)


def stage_mark(inp: ContextInput, share: float) -> float:
    """Return the tokens above which a stage begins, in the model's tokens."""
    return min(share * inp.budget.window_tokens, MARK_CAP * inp.budget.budget_tokens)


def _pruned(view: View, keep_last: int, name: str) -> View:
    outputs = sorted(
        message.position
        for message in view.messages
        if message.role is Role.TOOL and message.position is not None and message.position not in view.pinned
    )
    through = outputs[-keep_last - 1] if len(outputs) > keep_last else 0
    if through <= view.state.pruned_through_position:
        return view
    state = replace(view.state, rung=name, pruned_through_position=through, keep_last=keep_last)
    pruned = show(view.inp, state)
    freed = scale(view.tokens - pruned.tokens, view.inp.factor)
    return pruned if freed >= view.inp.policy.prune.min_freed * view.inp.budget.window_tokens else view
