"""The view right after a compaction: the new summary in it, the rest as it was, and where triggers count from."""

from dataclasses import replace

from app.context.context_input import ContextInput
from app.context.view import View, show
from app.context.view_state import after_compaction


def waiting_for_growth(view: View) -> View:
    """Return the view after a summary that was not worth it: the triggers count from here."""
    rows = view.inp.rows
    newest = rows[-1].position if rows else view.state.skipped_through_position
    state = replace(view.state, compacted_to_tokens=view.tokens, skipped_through_position=newest)
    return replace(view, state=state)


def reopen(inp: ContextInput) -> View:
    """Return the view with a summary that was just adopted; its size is what the next growth is measured from."""
    view = show(inp, after_compaction(inp.view_state, 0))
    return replace(view, state=after_compaction(view.state, view.tokens))
