"""The last stages before a prompt is refused: each chooses a view state that shows less, as far as needed.

A stage gets a view and a goal and returns a new state, or the same one if it cannot help. Only `view.show` makes
prompts from states, so that the effect of a stage is repeated in the same way before every later call.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from throughline.context.measure import count_system
from throughline.context.stages.message_cuts import (
    choose_fitting_level,
    current_tokens,
    room_for_user,
    running_groups,
    spared_step_positions,
    with_fold,
    with_pins_cut,
    with_rows_cut,
    with_user_cut,
)
from throughline.context.stages.trim_groups import Goal, groups_to_drop, past_groups, trimmed
from throughline.context.view import View, show
from throughline.context.view_state import ViewState

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
