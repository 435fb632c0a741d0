"""Choice of the groups that are left out of a view: as few of the oldest as necessary.

It also checks how much a strategy's stage has to free.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from throughline.context.calibration import scale
from throughline.context.compaction_cut import WORTHWHILE_SHARE
from throughline.context.compaction_triggers import GROWTH_SHARE, has_grown
from throughline.context.groups import Group, group_messages
from throughline.context.view import View, show
from throughline.context.view_state import PENDING, ViewState
from throughline.domain.prompt import PromptMessage

NOTE_TOKENS = 48
"""Approximate tokens of a note about hidden messages; this much room is reserved for it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The prompt's maximum size (`limit`) and the size that a running stage aims at (`aim`), both by our count."""

    limit: int
    aim: int


def past_groups(view: View) -> list[Group[PromptMessage]]:
    """Return the groups before the user's current message that may be left out, oldest first."""
    return removable(view, view.messages[: view.current_index])


def removable(view: View, messages: Sequence[PromptMessage]) -> list[Group[PromptMessage]]:
    """Return the groups that a stage may leave out: not pins, notes, or messages that the repair has added."""
    return [
        group
        for group in group_messages(messages)
        if group.head.position is not None and not any(message.position in view.pinned for message in group.messages)
    ]


def positions_of(groups: Sequence[Group[PromptMessage]]) -> list[int]:
    """Return the stored positions of the groups' messages; a placeholder for a missing result has none."""
    return [message.position for group in groups for message in group.messages if message.position is not None]


def group_tokens(view: View, groups: Sequence[Group[PromptMessage]]) -> list[int]:
    """Return the tokens of each group as it is shown."""
    tokens = {id(message): count for message, count in zip(view.messages, view.counts, strict=True)}
    return [sum(tokens[id(message)] for message in group.messages) for group in groups]


def groups_to_drop(view: View, groups: Sequence[Group[PromptMessage]], goal: Goal, *, keep_messages: int) -> int:
    """Return how many groups, oldest first, have to be left out to reach the aim, else the limit; else all.

    The newest groups, which hold `keep_messages` messages, are left out only to reach the limit.
    """
    total, count = view.tokens, len(groups)
    freed = list(accumulate(group_tokens(view, groups), initial=-NOTE_TOKENS))
    freed[0] = 0
    for_limit = next((n for n in range(count + 1) if total - freed[n] <= goal.limit), count)
    for_aim = next((n for n in range(count + 1) if total - freed[n] <= goal.aim), count)
    return max(for_limit, min(for_aim, droppable_count(groups, keep_messages)))


def droppable_count(groups: Sequence[Group[PromptMessage]], keep_messages: int) -> int:
    """Return how many of the oldest groups may be left out so that the rest holds at least `keep_messages` messages."""
    kept = 0
    for index in range(len(groups) - 1, -1, -1):
        if kept >= keep_messages:
            return index + 1
        kept += len(groups[index].messages)
    return 0


def trimmed(view: View, groups: Sequence[Group[PromptMessage]]) -> ViewState:
    """Return the state that hides these groups, the oldest ones, together with late results of their calls."""
    current = view.context_input.current
    end = float("inf") if current is None else current.position
    through = max((position for position in positions_of(groups) if position < end), default=0)
    return replace(view.state, trimmed_through_position=max(through, view.state.trimmed_through_position))


def apply_stage(view: View, state: ViewState, name: str) -> tuple[View, tuple[str, ...]]:
    """Return the view that a strategy's `state` shows, and the stage's name; growth is then measured from its size.

    Return the view unchanged and no name if too little would be freed. The required share of the window is larger until
    the prompt has grown by as much since the last stage.
    """
    smaller = show(view.context_input, replace(state, stage=name))
    freed = scale(view.tokens - smaller.tokens, view.context_input.factor)
    least = WORTHWHILE_SHARE if has_grown(view.context_input, view.tokens) else GROWTH_SHARE
    if freed < least * view.context_input.budget.window_tokens:
        return view, ()
    return drop_hidden_entries(replace(smaller, state=replace(smaller.state, compacted_to_tokens=smaller.tokens))), (
        name,
    )


def drop_hidden_entries(view: View) -> View:
    """Return the view with a state that holds nothing about messages which are hidden by the summary or trimmed."""
    state, current = view.state, view.context_input.current
    hidden = max(view.context_input.summary_through_position, state.trimmed_through_position)
    shown = view.pinned | {PENDING if current is None else current.position}
    state = replace(
        state,
        truncations=tuple(cut for cut in state.truncations if cut[0] > hidden),
        left_out=tuple(pair for pair in state.left_out if pair[1] > hidden),
        folded=tuple(pair for pair in state.folded if pair[1] > hidden),
        user_cuts=tuple(cut for cut in state.user_cuts if cut[0] > hidden or cut[0] in shown),
    )
    return replace(view, state=state)
