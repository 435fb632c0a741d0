"""Judges what a step leaves of a view state: what was done stays done, until a compaction ends it."""

import math

from throughline.context.view.view_state import ViewState

EDGES = ("pruned_through_position", "trimmed_through_position")


def moved_back(before: ViewState, after: ViewState, cursor: int, *, is_compacted: bool) -> str:
    """Return what has moved back, '' where nothing has."""
    moved = next((edge for edge in EDGES if getattr(after, edge) < getattr(before, edge)), "")
    if moved:
        return moved
    cursor = max(cursor, after.trimmed_through_position)  # what lies before it is not shown, whatever was done to it
    if any(_level(after, position) > _level(before, position) for position in _boundaries(before, after, cursor)):
        return "truncations"
    hidden = [p for first, last in before.left_out for p in range(first, last + 1) if p > cursor]
    if not all(after.is_left_out(position) for position in hidden):
        return "left_out"
    folded = [pair for pair in before.folded if pair[1] > cursor]
    if not all(any(new[0] <= old[0] and old[1] <= new[1] for new in after.folded) for old in folded):
        return "folded"
    return "" if is_compacted else _loosened(before, after, cursor)


def kept_in_vain(state: ViewState, cursor: int, shown: frozenset[int]) -> list[tuple[int, int]]:
    """Return what a state says of messages that are not shown any more; those at `shown` are, wherever they stand."""
    hidden = max(cursor, state.trimmed_through_position)
    ranges = [pair for pair in (*state.left_out, *state.folded) if pair[1] <= hidden]
    cuts = [cut for cut in state.user_cuts if cut[0] <= hidden and cut[0] not in shown]
    return [*ranges, *cuts, *(pair for pair in state.truncations if pair[0] <= hidden)]


def _boundaries(before: ViewState, after: ViewState, cursor: int) -> list[int]:
    """Return the positions after the cursor at which what a message may take can change."""
    ends = [end for state in (before, after) for end, _ in state.truncations]
    return [position for end in ends for position in (end, end + 1) if position > cursor]


def _level(state: ViewState, position: int) -> float:
    level = next((tokens for end, tokens in state.truncations if position <= end), None)
    return math.inf if level is None else level


def _loosened(before: ViewState, after: ViewState, cursor: int) -> str:
    for name in ("summary_to_tokens", "pins_to_tokens"):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and (new is None or new > old):
            return name
    cuts = dict(after.user_cuts)
    for position, tokens in before.user_cuts:
        if position > cursor and cuts.get(position, _level(after, position)) > tokens:
            return "user_cuts"
    for name in ("without_notes", "without_pins"):
        if getattr(before, name) and not getattr(after, name):
            return name
    return ""
