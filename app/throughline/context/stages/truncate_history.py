"""The strategy `truncation`: over the threshold, only the newest messages stay in view. It needs no model call."""

from throughline.context.calibration import unscale
from throughline.context.compaction_triggers import GROWTH_SHARE
from throughline.context.stages.trim_groups import (
    Goal,
    apply_stage,
    droppable_count,
    groups_to_drop,
    past_groups,
    trimmed,
)
from throughline.context.view import View

NAME = "history_truncated"
LEAST_SHARE = 0.5
"""Least share of the threshold that may stay, even if a small threshold then leaves little room to grow."""


def truncate_history(view: View) -> tuple[View, tuple[str, ...]]:
    """Keep the newest `keep_recent` messages; if they leave too little room to grow, keep only what fits the target.

    The view is returned unchanged if too little would be freed.
    """
    groups = past_groups(view)
    if not groups:
        return view, ()
    wanted = droppable_count(
        groups, view.context_input.policy.keep_recent - 1
    )  # the user's message is one of the newest
    most = _most_tokens(view)
    enough = groups_to_drop(view, groups, Goal(limit=most, aim=most), keep_messages=0)
    target = min(unscale(view.context_input.budget.target_tokens, view.context_input.factor), most)
    fewer = groups_to_drop(view, groups, Goal(limit=target, aim=target), keep_messages=0)
    dropped = wanted if wanted >= enough else fewer
    return apply_stage(view, trimmed(view, groups[:dropped]), NAME)


def _most_tokens(view: View) -> int:
    """Return the most tokens, by our count, that may stay so that the prompt can grow before the next stage."""
    budget = view.context_input.budget
    room = budget.threshold_tokens - int(GROWTH_SHARE * budget.window_tokens)
    return unscale(max(room, int(LEAST_SHARE * budget.threshold_tokens)), view.context_input.factor)
