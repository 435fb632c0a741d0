"""The view right after a compaction: the new summary in it, the rest as it was, and where triggers count from."""

from dataclasses import replace

from throughline.context.context_input import ContextInput
from throughline.context.view import View, show
from throughline.context.view_state import ViewState, after_compaction


def kept_state(view: View) -> ViewState:
    """Return the state to keep with the session after a stage: the factor in force, and where growth counts from.

    What made the prompt smaller than the last compaction, or stage of a strategy, left it also lowers where the next
    one counts from.
    """
    state, before = view.state, view.state.compacted_to_tokens
    smaller = None if before is None else min(before, view.tokens)
    return replace(state, factor=view.context_input.factor, compacted_to_tokens=smaller)


def waiting_for_growth(view: View) -> View:
    """Return the view after a summary that was not worth it: the triggers count from here."""
    rows = view.context_input.rows
    newest = rows[-1].position if rows else view.state.skipped_through_position
    state = replace(view.state, compacted_to_tokens=view.tokens, skipped_through_position=newest)
    return replace(view, state=state)


def next_view(context_input: ContextInput) -> View:
    """Return the view with a summary that was just adopted; its size is what the next growth is measured from."""
    view = show(context_input, after_compaction(context_input.view_state, 0))
    return replace(view, state=after_compaction(view.state, view.tokens))
