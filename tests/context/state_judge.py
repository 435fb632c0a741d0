"""Judges what a step leaves of a view state: what was done stays done, until a compaction ends it."""

from app.context.view_state import ViewState

EDGES = ("pruned_through_position", "trimmed_through_position", "truncated_through_position")


def moved_back(before: ViewState, after: ViewState, cursor: int, *, is_compacted: bool) -> str:
    """Return what has moved back, '' where nothing has."""
    moved = next((edge for edge in EDGES if getattr(after, edge) < getattr(before, edge)), "")
    if moved:
        return moved
    if before.truncated_through_position > cursor and after.truncated_to_tokens > before.truncated_to_tokens:
        return "truncated_to_tokens"
    hidden = [p for first, last in before.left_out for p in range(first, last + 1) if p > cursor]
    if not all(after.is_left_out(position) for position in hidden):
        return "left_out"
    folded = [pair for pair in before.folded if pair[1] > cursor]
    if not all(any(new[0] <= old[0] and old[1] <= new[1] for new in after.folded) for old in folded):
        return "folded"
    return "" if is_compacted else _loosened(before, after, cursor)


def _loosened(before: ViewState, after: ViewState, cursor: int) -> str:
    for name in ("summary_to_tokens", "pins_to_tokens"):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and (new is None or new > old):
            return name
    cuts, edge = dict(after.user_cuts), after.truncated_through_position
    for position, tokens in before.user_cuts:
        now = cuts.get(position, after.truncated_to_tokens if position <= edge else tokens + 1)
        if position > cursor and now > tokens:
            return "user_cuts"
    return "without_notes" if before.without_notes and not after.without_notes else ""
