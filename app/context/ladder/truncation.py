"""The strategy `truncation`: over the threshold all but the newest messages leave the view. No model is asked."""

from dataclasses import replace

from app.context.calibration import unscale
from app.context.ladder.trimming import Goal, droppable, fewest, past_groups, trimmed
from app.context.view import View, show

NAME = "history_truncated"


def truncate_history(view: View) -> tuple[View, tuple[str, ...]]:
    """Keep the newest `keep_recent` messages, fewer where even those are over the threshold."""
    budget, factor = view.inp.budget, view.inp.factor
    groups = past_groups(view)
    if not groups:
        return view, ()
    goal = Goal(limit=unscale(budget.threshold_tokens, factor), aim=unscale(budget.threshold_tokens, factor))
    wanted = droppable(groups, view.inp.policy.keep_recent - 1)  # the user's message is the newest of them
    dropped = wanted if wanted and _fits(view, wanted, goal) else _to_target(view)
    state = replace(trimmed(view, groups[:dropped]), rung=NAME)
    return show(view.inp, state), (NAME,)


def _fits(view: View, dropped: int, goal: Goal) -> bool:
    return dropped >= fewest(view, past_groups(view), goal, keep_messages=0)


def _to_target(view: View) -> int:
    target = unscale(view.inp.budget.target_tokens, view.inp.factor)
    return fewest(view, past_groups(view), Goal(limit=target, aim=target), keep_messages=0)
