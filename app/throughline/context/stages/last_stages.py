"""The stages of the last ladder: each chooses a view state that shows less in one way, as far as needed.

A stage is given a view and a goal and returns a further state, the same one where it cannot help. It never writes a
prompt itself: `view.show` does, so that what a stage did is done again in the same way before every later call.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from throughline.context.measure import count_system
from throughline.context.stages.message_cuts import (
    current_tokens,
    newest_small_step,
    room_for_user,
    running_groups,
    tightened,
    with_fold,
    with_pins_cut,
    with_rows_cut,
    with_user_cut,
)
from throughline.context.stages.trim_groups import Goal, fewest, past_groups, trimmed
from throughline.context.view import View, show
from throughline.context.view_state import ViewState

Stage: TypeAlias = Callable[[View, Goal], ViewState]

OLDEST_TRIMMED = "oldest_trimmed"
"""Also what is done where older rows were not loaded."""

OVERSIZED_USER_SHARE = 0.5
"""A user's text that could never fit is cut to this share of the room first, so that it is not all there is."""

SUMMARY_CAP_SHARE, SUMMARY_FLOOR_SHARE = 0.30, 0.15
"""A summary above the cap is always cut to it; it is cut down to the floor where that alone makes the prompt fit."""

BIG_SHARE = 0.05
BIG_TOKENS = 2000
SMALLEST_SHOWN = 48
"""A message is big, and may be truncated, above this share of the room (at most so many tokens, at least so few)."""


def cap_oversized_user_text(view: View, goal: Goal) -> ViewState:
    """Cut a user's text that does not fit even alone; it would otherwise push everything else out and be cut too."""
    if view.current is None:
        return view.state
    alone = count_system(view.context_input.system_prompt, view.context_input.count) + view.context_input.tools_tokens
    if current_tokens(view) <= goal.limit - alone:
        return view.state
    return with_user_cut(view, int(goal.limit * OVERSIZED_USER_SHARE))


def shorten_summary(view: View, goal: Goal) -> ViewState:
    """Cut the summary: to the floor if that is enough, else only what is above its cap."""
    if not view.summary:
        return view.state
    size = view.context_input.count(view.summary)
    needed = size - (view.tokens - goal.limit)
    floor, cap = int(SUMMARY_FLOOR_SHARE * goal.limit), int(SUMMARY_CAP_SHARE * goal.limit)
    allowed = needed if needed >= floor else cap
    return view.state if size <= allowed else replace(view.state, summary_to_tokens=max(allowed, 1))


def truncate_big_messages(view: View, goal: Goal) -> ViewState:
    """Show big messages middle-out, all to one level; the user's current text and pins are not among them.

    Nor are the newest results of the running turn where they keep to a tool's share: what was just read again, part
    by part, would lose its middle to parts that were read before.
    """
    smallest = max(min(int(goal.limit * BIG_SHARE), BIG_TOKENS), SMALLEST_SHOWN)
    spared = newest_small_step(view)
    return tightened(view, goal.aim, lambda room: with_rows_cut(view, room, smallest, spared))


def trim_oldest(view: View, goal: Goal) -> ViewState:
    """Leave out the oldest groups before the user's current message, as few as reach the aim, else the limit.

    The newest `min_recent_messages` go only where the prompt would not fit otherwise.
    """
    past = past_groups(view)
    if not past:
        return view.state
    dropped = fewest(view, past, goal, keep_messages=max(view.context_input.policy.min_recent_messages, 0))
    state, more = trimmed(view, past[:dropped]), 1
    while (
        dropped < len(past) and show(view.context_input, state).tokens > goal.limit
    ):  # the notes took more than was left
        dropped, more = min(dropped + more, len(past)), 2 * more
        state = trimmed(view, past[:dropped])
    return state


def fold_all_steps(view: View, goal: Goal) -> ViewState:
    """Fold every step of the running turn, the newest too."""
    del goal
    return with_fold(view, running_groups(view))


def squeeze_messages(view: View, goal: Goal) -> ViewState:
    """Show all that is left as short as it can be read; what a call cannot give, its ids and names, others give."""
    return tightened(view, goal.limit, lambda room: with_rows_cut(view, room, SMALLEST_SHOWN))


def fold_running_steps(view: View, goal: Goal) -> ViewState:
    """Show the oldest steps of the running turn as one short text; never the newest, which is what goes on."""
    running = running_groups(view)[:-1]
    return with_fold(view, running[: fewest(view, running, goal, keep_messages=0)])


def drop_summary(view: View, goal: Goal) -> ViewState:
    """Leave the summary out; a note says that there was more."""
    del goal
    return replace(view.state, summary_to_tokens=0) if view.summary else view.state


def truncate_pins(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages, which fitted when they were pinned: the window has become smaller since.

    The user's current text, if it is pinned too, stays as it is and may be cut from now on.
    """
    return tightened(view, goal.limit, lambda room: with_pins_cut(view, room, SMALLEST_SHOWN))


def truncate_pins_hard(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages to what room there is, however little."""
    return tightened(view, goal.limit, lambda room: with_pins_cut(view, room, 1))


def truncate_user_text(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to what room there is, where that is enough to say anything."""
    return view.state if room_for_user(view, goal) < SMALLEST_SHOWN else truncate_user_text_hard(view, goal)


def drop_notes(view: View, goal: Goal) -> ViewState:
    """Give the room of the notes to the user's text, in windows so small that nothing else is left to give."""
    del goal
    is_noted = any(message.position is None and message is not view.current for message in view.messages)
    return replace(view.state, without_notes=True) if is_noted else view.state


def truncate_user_text_hard(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to what room there is, however little."""
    return view.state if view.current is None else with_user_cut(view, room_for_user(view, goal))


def leave_out_pins(view: View, goal: Goal) -> ViewState:
    """Take pinned messages away as all others: the ids and names of their calls, which nothing cuts, are too much."""
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
"""Tried in this order until the aim is reached, so that there is room to go on in."""

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
"""Tried in this order while the prompt is over the limit; the last ones cannot fail where anything fits at all."""
