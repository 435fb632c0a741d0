"""The view and its state after a compaction, and the position from which triggers count again."""

from dataclasses import replace

from throughline.context.context_input import ContextInput
from throughline.context.view import View, show
from throughline.context.view_state import ViewState, after_compaction


def kept_state(view: View) -> ViewState:
    """Return the view state to store with the session after a stage, with the factor in force.

    If the prompt is now smaller than after the last compaction, growth is measured from the smaller size.
    """
    state, before = view.state, view.state.compacted_to_tokens
    smaller = None if before is None else min(before, view.tokens)
    return replace(state, factor=view.context_input.factor, compacted_to_tokens=smaller)


def waiting_for_growth(view: View) -> View:
    """Return the view after a summary that was not worth writing: the triggers count from the newest message on."""
    rows = view.context_input.rows
    newest = rows[-1].position if rows else view.state.skipped_through_position
    state = replace(view.state, compacted_to_tokens=view.tokens, skipped_through_position=newest)
    return replace(view, state=state)


def next_view(context_input: ContextInput) -> View:
    """Return the view with a newly adopted summary; its size becomes the base from which growth is measured."""
    view = show(context_input, after_compaction(context_input.view_state, 0))
    return replace(view, state=after_compaction(view.state, view.tokens))
