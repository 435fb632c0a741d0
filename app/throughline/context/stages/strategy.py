"""The strategies for a prompt over its threshold, behind one protocol. An agent's YAML chooses one."""

from collections.abc import Mapping
from typing import Protocol

from throughline.context.policy import Strategy
from throughline.context.stages.keep_important import keep_important
from throughline.context.stages.truncate_history import truncate_history
from throughline.context.view import View


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
