"""Shared functions of the last stages in `last_stages.py`: cuts of messages, and folding of a turn's steps.

Messages are cut to one common level of tokens, except those that a stage spares. The user's text is cut to a size of
its own. Earlier steps of a turn become one note.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from throughline.context.budget import result_limit
from throughline.context.groups import Group
from throughline.context.shrink_message import fair_level
from throughline.context.stages.trim_groups import Goal, positions_of, removable
from throughline.context.view import View, show
from throughline.context.view_state import PENDING, ViewState, truncated
from throughline.domain.prompt import PromptMessage

SQUEEZES = 3
"""Number of tries for a lower level before the lowest is used."""

FRAMING_TOKENS = 48
"""Tokens of a tool result besides its text: ids, names and the message's framing."""


def choose_fitting_level(view: View, most: int, choose: Callable[[int], ViewState]) -> ViewState:
    """Return the state that `choose` makes for the room `most`, or for less room if the prompt then still exceeds it.

    The prompt exceeds it if parts that cannot be cut take more than their share.
    """
    room = most
    for _ in range(SQUEEZES):
        state = choose(room)
        over = show(view.context_input, state).tokens - most
        if over <= 0:
            return state
        room -= over
    return choose(0)


def with_pins_cut(view: View, room: int, smallest: int) -> ViewState:
    """Return the state that cuts all pinned messages to one level, so that the prompt fits `room`.

    The level is at least `smallest` tokens.
    """
    sizes = _sizes(view, view.pinned)
    is_current_pinned = view.current is not None and view.current.position in view.pinned
    if not sizes and not is_current_pinned:
        return view.state
    level = _level(view, sizes, room, smallest)
    state = _with_current_kept(view, view.state) if is_current_pinned else view.state
    cuts = tuple(_cut_as_pin(view, cut, level) for cut in state.user_cuts)
    return replace(state, pins_to_tokens=min(level, state.pins_to_tokens or level), user_cuts=cuts)


def _cut_as_pin(view: View, cut: tuple[int, int], level: int) -> tuple[int, int]:
    """Return the cut of a user's text, lowered to `level` if the text is pinned and not the current message."""
    position, tokens = cut
    is_earlier_pin = position in view.pinned and not _is_current(view, position)
    return position, min(tokens, level) if is_earlier_pin else tokens


def _level(view: View, sizes: Sequence[int], room: int, smallest: int) -> int:
    """Return the tokens that each of `sizes` may keep, so that they and the rest of the view fit `room`."""
    return max(fair_level(sizes, max(room - (view.tokens - sum(sizes)), 0)), smallest)


def spared_step_positions(view: View) -> frozenset[int]:
    """Return the positions of the newest tool calls and results of the running turn, which are not to be cut.

    Empty if one of these messages is larger than a tool result may be.
    """
    newest = frozenset(position for group in running_groups(view)[-1:] for position in positions_of([group]))
    most = (
        result_limit(view.context_input.policy, view.context_input.budget, factor=view.context_input.factor)
        + FRAMING_TOKENS
    )
    pairs = zip(view.messages, view.counts, strict=True)
    is_small = all(tokens <= most for message, tokens in pairs if message.position in newest)
    return newest if is_small else frozenset()


def with_rows_cut(view: View, goal_tokens: int, smallest: int, spared: frozenset[int] = frozenset()) -> ViewState:
    """Return the state that cuts messages to one level of tokens, so that the prompt takes `goal_tokens` if possible.

    The level is at least `smallest`. Pins, the user's current text and the positions `spared` are not cut. Messages
    that were cut shorter before stay so.
    """
    stored = frozenset(row.position for row in view.messages if row.position is not None) - spared
    sizes = _sizes(view, stored - view.pinned)
    level = _level(view, sizes, goal_tokens, smallest)
    if not sizes or max(sizes) <= level:
        return view.state
    state = truncated(view.state, max(stored), level)
    cuts = (cut for cut in state.user_cuts if _is_shown(view, cut[0]))
    lowered = (cut if cut[0] > max(stored) else _cut_too(view, cut, level) for cut in cuts)
    return _with_current_kept(view, replace(state, user_cuts=tuple(lowered)))


def _sizes(view: View, positions: frozenset[int]) -> list[int]:
    """Return the tokens of the messages at these positions, except for the user's current one."""
    shown = zip(view.messages, view.counts, strict=True)
    return [tokens for row, tokens in shown if row.position in positions and row is not view.current]


def _is_shown(view: View, position: int) -> bool:
    """Return whether the summary leaves the message at `position` in view: after the cursor, pinned, or current."""
    is_kept = _is_current(view, position) or position in view.pinned
    return is_kept or position > view.context_input.summary_through_position


def _cut_too(view: View, cut: tuple[int, int], level: int) -> tuple[int, int]:
    """Return the cut of a user's text, lowered to `level` if the text is neither pinned nor the current message."""
    position, tokens = cut
    is_kept = _is_current(view, position) or position in view.pinned
    return position, tokens if is_kept else min(tokens, level)


def _with_current_kept(view: View, state: ViewState) -> ViewState:
    """Record how much of the user's current text is shown, so that it is shown the same after its turn."""
    current = view.context_input.current
    if current is None or view.current is None or any(_is_current(view, cut[0]) for cut in state.user_cuts):
        return state
    return replace(state, user_cuts=(*state.user_cuts, (current.position, current_tokens(view))))


def _is_current(view: View, position: int) -> bool:
    return view.context_input.current is not None and view.context_input.current.position == position


def running_groups(view: View) -> list[Group[PromptMessage]]:
    """Return the groups of the running turn after the user message that it answers."""
    return removable(view, view.messages[view.current_index + (view.current is not None) :])


def with_fold(view: View, groups: Sequence[Group[PromptMessage]]) -> ViewState:
    """Return the state that shows one note in place of these groups."""
    positions = positions_of(groups)
    if not positions:
        return view.state
    return replace(view.state, folded=_joined(view.state.folded, (min(positions), max(positions))))


def _joined(ranges: tuple[tuple[int, int], ...], new: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Add a range to the folded ones; if it follows the last one directly, extend that instead."""
    if ranges and ranges[-1][1] + 1 >= new[0]:
        return (*ranges[:-1], (ranges[-1][0], max(new[1], ranges[-1][1])))
    return (*ranges, new)


def room_for_user(view: View, goal: Goal) -> int:
    """Return the tokens that the rest of the prompt leaves for the user's current text."""
    return 0 if view.current is None else goal.limit - (view.tokens - current_tokens(view))


def current_tokens(view: View) -> int:
    """Return the tokens of the user's current text as it is shown."""
    return view.counts[view.current_index]


def with_user_cut(view: View, tokens: int) -> ViewState:
    """Return the state that cuts the user's current text to `tokens`; a deeper earlier cut stays."""
    current = view.context_input.current
    position = PENDING if current is None else current.position
    cursor = view.context_input.summary_through_position
    kept = tuple(cut for cut in view.state.user_cuts if cut[0] != position and cut[0] > cursor)
    least = min((tokens, *(cut[1] for cut in view.state.user_cuts if cut[0] == position)))
    return replace(view.state, user_cuts=(*kept, (position, max(least, 1))))
