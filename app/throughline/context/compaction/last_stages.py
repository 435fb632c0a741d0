"""The last stages before a prompt is refused: each chooses a view state that shows less, as far as needed.

A stage gets a view and a goal and returns a new state, or the same one if it cannot help. Only `view.show` makes
prompts from states, so that the effect of a stage is repeated in the same way before every later call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from throughline.context.budget import result_limit
from throughline.context.compaction.strategy import Goal, groups_to_drop, past_groups, positions_of, removable, trimmed
from throughline.context.measure import count_system
from throughline.context.view.groups import Group
from throughline.context.view.shrink_message import fair_level
from throughline.context.view.view import View, show
from throughline.context.view.view_state import PENDING, ViewState, truncated
from throughline.domain.prompt import PromptMessage

# Functions that several of the last stages share: cuts of messages, and folding of a turn's steps.
#
# Messages are cut to one common level of tokens, except those that a stage spares. The user's text is cut to a size of
# its own. Earlier steps of a turn become one note.

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


Stage: TypeAlias = Callable[[View, Goal], ViewState]

OLDEST_TRIMMED = "oldest_trimmed"
"""Name of the stage that trims the oldest messages; also used if older messages were not loaded."""

OVERSIZED_USER_SHARE = 0.5
"""Share of the limit to which a user's text that could never fit is cut first, to leave room for other messages."""

SUMMARY_CAP_SHARE, SUMMARY_FLOOR_SHARE = 0.30, 0.15
"""Shares of the limit for a summary that is cut to make the prompt fit.

It is cut as far as needed if the rest is at least the floor. If it had to be smaller, it is cut only to the cap.
"""

BIG_SHARE = 0.05
BIG_TOKENS = 2000
SMALLEST_SHOWN = 48
"""Bounds of a big message, which may be truncated.

It takes more than BIG_SHARE of the limit; that bound is at most BIG_TOKENS and at least SMALLEST_SHOWN. The latter is
also the fewest tokens in which a cut message is still readable.
"""


def cap_oversized_user_text(view: View, goal: Goal) -> ViewState:
    """Cut a user's text that would not fit even alone.

    Otherwise it would displace everything else and be cut in the end.
    """
    if view.current is None:
        return view.state
    alone = count_system(view.context_input.system_prompt, view.context_input.count) + view.context_input.tools_tokens
    if current_tokens(view) <= goal.limit - alone:
        return view.state
    return with_user_cut(view, int(goal.limit * OVERSIZED_USER_SHARE))


def shorten_summary(view: View, goal: Goal) -> ViewState:
    """Cut the summary: to the needed size if that is above the floor, else only to its cap."""
    if not view.summary:
        return view.state
    size = view.context_input.count(view.summary)
    needed = size - (view.tokens - goal.limit)
    floor, cap = int(SUMMARY_FLOOR_SHARE * goal.limit), int(SUMMARY_CAP_SHARE * goal.limit)
    allowed = needed if needed >= floor else cap
    return view.state if size <= allowed else replace(view.state, summary_to_tokens=max(allowed, 1))


def truncate_big_messages(view: View, goal: Goal) -> ViewState:
    """Cut big messages in their middle, all to one level, except the user's current text and pins.

    The newest results of the running turn are spared if they keep within a tool result's limit. Otherwise parts just
    read again would be cut in favour of older ones.
    """
    smallest = max(min(int(goal.limit * BIG_SHARE), BIG_TOKENS), SMALLEST_SHOWN)
    spared = spared_step_positions(view)
    return choose_fitting_level(view, goal.aim, lambda room: with_rows_cut(view, room, smallest, spared))


def trim_oldest(view: View, goal: Goal) -> ViewState:
    """Leave out the oldest groups before the user's current message: as few as reach the aim, or else the limit.

    The newest `min_recent_messages` are left out only if the prompt would not fit otherwise.
    """
    past = past_groups(view)
    if not past:
        return view.state
    dropped = groups_to_drop(view, past, goal, keep_messages=max(view.context_input.policy.min_recent_messages, 0))
    state, more = trimmed(view, past[:dropped]), 1
    # The notes may take more than the room that was reserved for them.
    while dropped < len(past) and show(view.context_input, state).tokens > goal.limit:
        dropped, more = min(dropped + more, len(past)), 2 * more
        state = trimmed(view, past[:dropped])
    return state


def fold_all_steps(view: View, goal: Goal) -> ViewState:
    """Show one note in place of all tool calls and results of the running turn, including the newest."""
    del goal
    return with_fold(view, running_groups(view))


def squeeze_messages(view: View, goal: Goal) -> ViewState:
    """Cut all remaining messages, except the user's current text and pins, to the shortest readable size.

    The ids and names of calls cannot be cut; other messages are cut further to make up for them.
    """
    return choose_fitting_level(view, goal.limit, lambda room: with_rows_cut(view, room, SMALLEST_SHOWN))


def fold_running_steps(view: View, goal: Goal) -> ViewState:
    """Show the oldest steps of the running turn as one short note, never the newest step, which the turn continues."""
    running = running_groups(view)[:-1]
    return with_fold(view, running[: groups_to_drop(view, running, goal, keep_messages=0)])


def drop_summary(view: View, goal: Goal) -> ViewState:
    """Leave the summary out; a note says that earlier messages exist."""
    del goal
    return replace(view.state, summary_to_tokens=0) if view.summary else view.state


def truncate_pins(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages. They fitted when they were pinned, but the window has become smaller since.

    The user's current text, if it is pinned too, stays as it is; later stages may cut it.
    """
    return choose_fitting_level(view, goal.limit, lambda room: with_pins_cut(view, room, SMALLEST_SHOWN))


def truncate_pins_hard(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages to the remaining room, however small it is."""
    return choose_fitting_level(view, goal.limit, lambda room: with_pins_cut(view, room, 1))


def truncate_user_text(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to the remaining room, if the result is long enough to be understood."""
    return view.state if room_for_user(view, goal) < SMALLEST_SHOWN else truncate_user_text_hard(view, goal)


def drop_notes(view: View, goal: Goal) -> ViewState:
    """Remove the notes about hidden messages in favour of the user's text, in windows too small for both."""
    del goal
    is_noted = any(message.position is None and message is not view.current for message in view.messages)
    return replace(view.state, without_notes=True) if is_noted else view.state


def truncate_user_text_hard(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to the remaining room, however small it is."""
    return view.state if view.current is None else with_user_cut(view, room_for_user(view, goal))


def leave_out_pins(view: View, goal: Goal) -> ViewState:
    """Leave out pinned messages and all others before the user's text, and fold the running turn's steps.

    It is needed if the ids and names of pinned tool calls, which cannot be cut, take too many tokens.
    """
    if not view.pinned:
        return view.state
    bare = show(view.context_input, replace(view.state, without_pins=True))
    past = show(view.context_input, trimmed(bare, past_groups(bare)))
    state = fold_all_steps(past, goal)
    return state if show(view.context_input, state).tokens <= goal.limit else replace(state, without_notes=True)


SOFT_STAGES: tuple[tuple[str, Stage], ...] = (
    ("user_text_capped", cap_oversized_user_text),
    ("summary_shortened", shorten_summary),
    ("messages_truncated", truncate_big_messages),
    (OLDEST_TRIMMED, trim_oldest),
)
"""Stages tried in this order until the aim is reached, which leaves room for the next steps."""

HARD_STAGES: tuple[tuple[str, Stage], ...] = (
    ("steps_folded", fold_running_steps),
    ("messages_squeezed", squeeze_messages),
    ("all_steps_folded", fold_all_steps),
    ("summary_dropped", drop_summary),
    ("pins_truncated", truncate_pins),
    ("user_text_truncated", truncate_user_text),
    ("notes_dropped", drop_notes),
    ("user_text_truncated_hard", truncate_user_text_hard),
    ("pins_truncated_hard", truncate_pins_hard),
    ("pins_left_out", leave_out_pins),
)
"""Stages tried in this order while the prompt is over the limit; the last ones always succeed if any prompt can fit."""
