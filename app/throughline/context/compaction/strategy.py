"""The strategies for a prompt over its threshold, behind one protocol. An agent's YAML chooses one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from throughline.context.calibration import scale, unscale
from throughline.context.compaction.compaction_cut import WORTHWHILE_SHARE
from throughline.context.compaction.compaction_triggers import GROWTH_SHARE, has_grown
from throughline.context.measure import tokens_of
from throughline.context.policy import ImportanceWeights, Strategy
from throughline.context.view.context_input import ContextInput
from throughline.context.view.groups import Group, group_messages
from throughline.context.view.view import View, show
from throughline.context.view.view_state import NEW_VIEW, PENDING, ViewState
from throughline.domain.message import Content, Role, text_of
from throughline.domain.prompt import PromptMessage

# The strategy `importance`: over the threshold, the least important groups are left out of the view.
#
# `ImportanceWeights` in the policy sets the scores. Pinned messages always stay. Of equal scores the oldest go first.

# Choice of the groups that are left out of a view: as few of the oldest as necessary.
#
# It also checks how much a strategy's stage has to free.

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


UNIMPORTANT_LEFT_OUT = "unimportant_left_out"
LONG_CHARACTERS = 200
ACKNOWLEDGEMENT_CHARACTERS = 24
RECENT_GROUPS = 6
SCANNED_CHARACTERS = 4_000
"""Number of characters of a text that are searched for references."""

MOST_RANGES = 100
LOADED_SHARE = 1.25
"""Size in windows of the newest messages that the stage may keep; older ones are trimmed.

Older messages might no longer be loaded for a later prompt, which would then change between stages.
"""

_WORD = re.compile(r"[\w./-]{5,}")
_MARK = re.compile(r"\d|[_/.][\w./-]")


def keep_important(view: View) -> tuple[View, tuple[str, ...]]:
    """Leave out messages that score below `min_score_threshold`, then more, lowest score first, down to the target.

    The newest `min_recent_messages` stay. The view is returned unchanged if too little would be freed.
    """
    groups = past_groups(view)
    candidates = groups[: droppable_count(groups, max(view.context_input.policy.min_recent_messages - 1, 1))]
    if not candidates:
        return view, ()
    positions = _chosen(view, candidates, _scores(candidates, groups, view))
    return apply_stage(view, _with_left_out(view, positions), UNIMPORTANT_LEFT_OUT)


def score(group: Group[PromptMessage], referred: frozenset[str], weights: ImportanceWeights) -> float:
    """Return the importance of a group, 0 to 1; `referred` holds the distinct words of the newest messages."""
    if group.head.role is Role.USER:
        return weights.acknowledgement if _is_acknowledgement(group.head.content) else weights.user
    if group.head.tool_calls:
        return weights.tool_use
    if referred & distinct_words(message.content for message in group.messages):
        return weights.referenced
    if _is_acknowledgement(group.head.content):
        return weights.acknowledgement
    return weights.long_answer if len(text_of(group.head.content)) >= LONG_CHARACTERS else weights.short_answer


def score_messages(context_input: ContextInput) -> dict[int, float]:
    """Return the scores of the loaded messages after the summary, by position.

    Pinned messages and the current message have no score.
    """
    view = show(context_input, NEW_VIEW)
    groups = past_groups(view)
    scores = zip(groups, _scores(groups, groups, view), strict=True)
    return {position: score for group, score in scores for position in positions_of([group])}


def distinct_words(contents: Iterable[Content]) -> frozenset[str]:
    """Return the words that likely name one specific thing: five or more characters with a digit, slash, dot or `_`."""
    return frozenset(
        word
        for content in contents
        for word in _WORD.findall(text_of(content)[:SCANNED_CHARACTERS])
        if _MARK.search(word)
    )


def _scores(
    candidates: Sequence[Group[PromptMessage]], groups: Sequence[Group[PromptMessage]], view: View
) -> list[float]:
    recent = [message.content for group in groups[-RECENT_GROUPS:] for message in group.messages]
    if view.current is not None:
        recent.append(view.current.content)
    referred = distinct_words(recent)
    return [score(group, referred, view.context_input.policy.importance) for group in candidates]


def _chosen(view: View, candidates: Sequence[Group[PromptMessage]], scores: Sequence[float]) -> set[int]:
    """Return the positions to leave out: those with low scores, and as many more as the target requires."""
    target = unscale(view.context_input.budget.target_tokens, view.context_input.factor)
    tokens = group_tokens(view, candidates)
    left = view.tokens + NOTE_TOKENS
    positions: set[int] = set()
    for index in sorted(range(len(candidates)), key=lambda index: (scores[index], index)):
        if left <= target and scores[index] >= view.context_input.policy.min_score_threshold:
            break
        left -= tokens[index]
        positions.update(positions_of(candidates[index : index + 1]))
    return positions


def _with_left_out(view: View, positions: set[int]) -> ViewState:
    """Return the state that hides these positions, as ranges.

    All messages before the rows that stay loaded are trimmed, instead of being listed in ranges.
    """
    edge = max(view.state.trimmed_through_position, _loaded_edge(view))
    hidden = {position for first, last in view.state.left_out for position in range(first, last + 1)} | positions
    ranges = _ranges(sorted(position for position in hidden if position > edge))
    if len(ranges) > MOST_RANGES:
        edge = max(edge, ranges[-MOST_RANGES - 1][1])
        ranges = ranges[-MOST_RANGES:]
    return replace(view.state, trimmed_through_position=edge, left_out=tuple(ranges))


def _loaded_edge(view: View) -> int:
    """Return the position after which the stored rows take at most `LOADED_SHARE` windows."""
    context_input = view.context_input
    room = unscale(int(LOADED_SHARE * context_input.budget.window_tokens), context_input.factor)
    current = context_input.current
    for row in reversed(context_input.rows):
        room -= tokens_of(row, context_input.counter_name, context_input.count)
        if room < 0:
            return row.position if current is None else min(row.position, current.position - 1)
    return 0


def _ranges(positions: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for position in positions:
        if ranges and ranges[-1][1] + 1 == position:
            ranges[-1] = (ranges[-1][0], position)
        else:
            ranges.append((position, position))
    return ranges


def _is_acknowledgement(content: Content) -> bool:
    return len(text_of(content).strip()) <= ACKNOWLEDGEMENT_CHARACTERS and isinstance(content, str)


TRUNCATED = "history_truncated"
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
    return apply_stage(view, trimmed(view, groups[:dropped]), TRUNCATED)


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
