"""The strategies for a prompt over its threshold, behind one protocol. An agent's YAML chooses one."""

from collections.abc import Mapping
from typing import Protocol

from throughline.context.calibration import unscale
from throughline.context.compaction_triggers import GROWTH_SHARE
from throughline.context.policy import Strategy
from throughline.context.stages.keep_important import keep_important
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


class ReductionStrategy(Protocol):
    """A strategy: takes a view over the threshold; returns a smaller one, and the names of the stages that ran."""

    def __call__(self, view: View, /) -> tuple[View, tuple[str, ...]]:
        """Return the smaller view and the stages' names; the same view and no names if nothing can be left out."""


def leave_unchanged(view: View) -> tuple[View, tuple[str, ...]]:
    """Return the view unchanged: with this strategy, the plan decides which messages a new summary covers."""
    return view, ()


STRATEGIES: Mapping[Strategy, ReductionStrategy] = {
    Strategy.SUMMARIZATION: leave_unchanged,
    Strategy.TRUNCATION: truncate_history,
    Strategy.IMPORTANCE: keep_important,
}
