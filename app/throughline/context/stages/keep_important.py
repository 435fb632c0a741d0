"""The strategy `importance`: over the threshold, the least important groups are left out of the view.

`ImportanceWeights` in the policy sets the scores. Pinned messages always stay. Of equal scores the oldest go first.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from throughline.context.calibration import unscale
from throughline.context.context_input import ContextInput
from throughline.context.groups import Group
from throughline.context.measure import tokens_of
from throughline.context.policy import ImportanceWeights
from throughline.context.stages.trim_groups import (
    NOTE_TOKENS,
    apply_stage,
    droppable_count,
    group_tokens,
    past_groups,
    positions_of,
)
from throughline.context.view import View, show
from throughline.context.view_state import NEW_VIEW, ViewState
from throughline.domain.message import Content, Role, text_of
from throughline.domain.prompt import PromptMessage

NAME = "unimportant_left_out"
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
    return apply_stage(view, _with_left_out(view, positions), NAME)


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
