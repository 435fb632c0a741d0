"""What each strategy does once a prompt is over its threshold, behind one protocol. An agent's YAML chooses one."""

from collections.abc import Mapping
from typing import Protocol

from throughline.context.policy import Strategy
from throughline.context.stages.keep_important import keep_important
from throughline.context.stages.truncate_history import truncate_history
from throughline.context.view import View


class MakeRoom(Protocol):
    """Takes a view that is over the threshold; returns one that shows less, and the names of the stages that fired."""

    def __call__(self, view: View, /) -> tuple[View, tuple[str, ...]]:
        """Return the same view where nothing can be left out."""


def summarise_instead(view: View) -> tuple[View, tuple[str, ...]]:
    """Leave the view as it is: the plan says what a further summary has to stand for."""
    return view, ()


STRATEGIES: Mapping[Strategy, MakeRoom] = {
    Strategy.SUMMARIZATION: summarise_instead,
    Strategy.TRUNCATION: truncate_history,
    Strategy.IMPORTANCE: keep_important,
}
