"""The rungs of the last ladder: each chooses a view state that shows less in one way, as far as needed.

A rung is given a view and a goal and returns a further state, the same one where it cannot help. It never writes a
prompt itself: `view.show` does, so that what a rung did is done again in the same way before every later call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from throughline.context.budget import result_limit
from throughline.context.groups import Group
from throughline.context.ladder.trimming import Goal, fewest, past_groups, positions_of, removable, trimmed
from throughline.context.measure import count_system
from throughline.context.shrink import fair_level
from throughline.context.view import View, show
from throughline.context.view_state import PENDING, ViewState, truncated
from throughline.domain.prompt import PromptMessage

Rung: TypeAlias = Callable[[View, Goal], ViewState]

OLDEST_TRIMMED = "oldest_trimmed"
"""Also what is done where older rows were not loaded."""

HOPELESS_USER_SHARE = 0.5
"""A user's text that could never fit is cut to this share of the room first, so that it is not all there is."""

SUMMARY_CAP_SHARE, SUMMARY_FLOOR_SHARE = 0.30, 0.15
"""A summary above the cap is always cut to it; it is cut down to the floor where that alone makes the prompt fit."""

BIG_SHARE = 0.05
BIG_TOKENS = 2000
SMALLEST_SHOWN = 48
"""A message is big, and may be truncated, above this share of the room (at most so many tokens, at least so few)."""
SQUEEZES = 3

FRAMING_TOKENS = 48
"""What a result has beside its text: ids, names, and what a message takes by itself."""


def cap_hopeless_user_text(view: View, goal: Goal) -> ViewState:
    """Cut a user's text that does not fit even alone; it would otherwise push everything else out and be cut too."""
    if view.current is None:
        return view.state
    alone = count_system(view.inp.system_prompt, view.inp.count) + view.inp.tools_tokens
    if _current_tokens(view) <= goal.limit - alone:
        return view.state
    return _with_user_cut(view, int(goal.limit * HOPELESS_USER_SHARE))


def shorten_summary(view: View, goal: Goal) -> ViewState:
    """Cut the summary: to the floor if that is enough, else only what is above its cap."""
    if not view.summary:
        return view.state
    size = view.inp.count(view.summary)
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
    spared = _newest_small_step(view)
    return _tightened(view, goal.aim, lambda room: _truncated(view, room, smallest, spared))


def trim_oldest(view: View, goal: Goal) -> ViewState:
    """Leave out the oldest groups before the user's current message, as few as reach the aim, else the limit.

    The newest `min_recent_messages` go only where the prompt would not fit otherwise.
    """
    past = past_groups(view)
    if not past:
        return view.state
    dropped = fewest(view, past, goal, keep_messages=max(view.inp.policy.min_recent_messages, 0))
    state, more = trimmed(view, past[:dropped]), 1
    while dropped < len(past) and show(view.inp, state).tokens > goal.limit:  # the notes took more than was left
        dropped, more = min(dropped + more, len(past)), 2 * more
        state = trimmed(view, past[:dropped])
    return state


def fold_all_steps(view: View, goal: Goal) -> ViewState:
    """Fold every step of the running turn, the newest too."""
    del goal
    return _folded(view, _running_groups(view))


def squeeze_messages(view: View, goal: Goal) -> ViewState:
    """Show all that is left as short as it can be read; what a call cannot give, its ids and names, others give."""
    return _tightened(view, goal.limit, lambda room: _truncated(view, room, SMALLEST_SHOWN))


def fold_running_steps(view: View, goal: Goal) -> ViewState:
    """Show the oldest steps of the running turn as one short text; never the newest, which is what goes on."""
    running = _running_groups(view)[:-1]
    return _folded(view, running[: fewest(view, running, goal, keep_messages=0)])


def drop_summary(view: View, goal: Goal) -> ViewState:
    """Leave the summary out; a note says that there was more."""
    del goal
    return replace(view.state, summary_to_tokens=0) if view.summary else view.state


def truncate_pins(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages, which fitted when they were pinned: the window has become smaller since.

    The user's current text, if it is pinned too, stays as it is and may be cut from now on.
    """
    return _tightened(view, goal.limit, lambda room: _with_pins_cut(view, room, SMALLEST_SHOWN))


def truncate_pins_hard(view: View, goal: Goal) -> ViewState:
    """Cut pinned messages to what room there is, however little."""
    return _tightened(view, goal.limit, lambda room: _with_pins_cut(view, room, 1))


def truncate_user_text(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to what room there is, where that is enough to say anything."""
    return view.state if _room_for_user(view, goal) < SMALLEST_SHOWN else truncate_user_text_hard(view, goal)


def drop_notes(view: View, goal: Goal) -> ViewState:
    """Give the room of the notes to the user's text, in windows so small that nothing else is left to give."""
    del goal
    is_noted = any(message.position is None and message is not view.current for message in view.messages)
    return replace(view.state, without_notes=True) if is_noted else view.state


def truncate_user_text_hard(view: View, goal: Goal) -> ViewState:
    """Cut the user's current text to what room there is, however little."""
    return view.state if view.current is None else _with_user_cut(view, _room_for_user(view, goal))


def leave_out_pins(view: View, goal: Goal) -> ViewState:
    """Take pinned messages away as all others: the ids and names of their calls, which nothing cuts, are too much."""
    if not view.pinned:
        return view.state
    bare = show(view.inp, replace(view.state, without_pins=True))
    past = show(view.inp, trimmed(bare, past_groups(bare)))
    state = fold_all_steps(past, goal)
    return state if show(view.inp, state).tokens <= goal.limit else replace(state, without_notes=True)


SOFT_RUNGS: tuple[tuple[str, Rung], ...] = (
    ("user_text_capped", cap_hopeless_user_text),
    ("summary_shortened", shorten_summary),
    ("messages_truncated", truncate_big_messages),
    (OLDEST_TRIMMED, trim_oldest),
)
"""Tried in this order until the aim is reached, so that there is room to go on in."""

HARD_RUNGS: tuple[tuple[str, Rung], ...] = (
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


def _tightened(view: View, most: int, choose: Callable[[int], ViewState]) -> ViewState:
    """Choose a level for a prompt of `most`, and for less where what cannot be cut has taken more than its share."""
    room = most
    for _ in range(SQUEEZES):
        state = choose(room)
        over = show(view.inp, state).tokens - most
        if over <= 0:
            return state
        room -= over
    return choose(0)


def _with_pins_cut(view: View, room: int, smallest: int) -> ViewState:
    sizes = _sizes(view, view.pinned)
    is_current_pinned = view.current is not None and view.current.position in view.pinned
    if not sizes and not is_current_pinned:
        return view.state
    level = _level(view, sizes, room, smallest)
    state = _with_current_kept(view, view.state) if is_current_pinned else view.state
    cuts = tuple(_cut_as_pin(view, cut, level) for cut in state.user_cuts)
    return replace(state, pins_to_tokens=min(level, state.pins_to_tokens or level), user_cuts=cuts)


def _cut_as_pin(view: View, cut: tuple[int, int], level: int) -> tuple[int, int]:
    """Return the cut of a user's text, with less of it where it is pinned and not the current one."""
    position, tokens = cut
    is_earlier_pin = position in view.pinned and not _is_current(view, position)
    return position, min(tokens, level) if is_earlier_pin else tokens


def _level(view: View, sizes: Sequence[int], room: int, smallest: int) -> int:
    """Return the tokens that each of `sizes` may keep, so that they and the rest of the view take the room."""
    return max(fair_level(sizes, max(room - (view.tokens - sum(sizes)), 0)), smallest)


def _newest_small_step(view: View) -> frozenset[int]:
    """Return the positions of the newest step, none where one of its messages is above what a result should have."""
    newest = frozenset(position for group in _running_groups(view)[-1:] for position in positions_of([group]))
    most = result_limit(view.inp.policy, view.inp.budget, factor=view.inp.factor) + FRAMING_TOKENS
    pairs = zip(view.messages, view.counts, strict=True)
    is_small = all(tokens <= most for message, tokens in pairs if message.position in newest)
    return newest if is_small else frozenset()


def _truncated(view: View, goal_tokens: int, smallest: int, spared: frozenset[int] = frozenset()) -> ViewState:
    """Choose the level to which all messages above it are cut; one that was cut shorter before stays so."""
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
    """Return the tokens of the messages at these positions, but for the user's current one."""
    shown = zip(view.messages, view.counts, strict=True)
    return [tokens for row, tokens in shown if row.position in positions and row is not view.current]


def _is_shown(view: View, position: int) -> bool:
    """Whether a stored message is shown if nothing else hides it."""
    is_kept = _is_current(view, position) or position in view.pinned
    return is_kept or position > view.inp.summary_through_position


def _cut_too(view: View, cut: tuple[int, int], level: int) -> tuple[int, int]:
    """Return the cut of a user's text, with less of it where it is neither pinned nor the current one."""
    position, tokens = cut
    is_kept = _is_current(view, position) or position in view.pinned
    return position, tokens if is_kept else min(tokens, level)


def _with_current_kept(view: View, state: ViewState) -> ViewState:
    """Note how much of the user's current text is shown, so that it stays so when its turn is over."""
    current = view.inp.current
    if current is None or view.current is None or any(_is_current(view, cut[0]) for cut in state.user_cuts):
        return state
    return replace(state, user_cuts=(*state.user_cuts, (current.position, _current_tokens(view))))


def _is_current(view: View, position: int) -> bool:
    return view.inp.current is not None and view.inp.current.position == position


def _running_groups(view: View) -> list[Group[PromptMessage]]:
    return removable(view, view.messages[view.current_index + (view.current is not None) :])


def _folded(view: View, groups: Sequence[Group[PromptMessage]]) -> ViewState:
    positions = positions_of(groups)
    if not positions:
        return view.state
    return replace(view.state, folded=_joined(view.state.folded, (min(positions), max(positions))))


def _joined(ranges: tuple[tuple[int, int], ...], new: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Add a range; the turn's earlier one, which the new one follows, grows by it."""
    if ranges and ranges[-1][1] + 1 >= new[0]:
        return (*ranges[:-1], (ranges[-1][0], max(new[1], ranges[-1][1])))
    return (*ranges, new)


def _room_for_user(view: View, goal: Goal) -> int:
    return 0 if view.current is None else goal.limit - (view.tokens - _current_tokens(view))


def _current_tokens(view: View) -> int:
    return view.counts[view.current_index]


def _with_user_cut(view: View, tokens: int) -> ViewState:
    current = view.inp.current
    position = PENDING if current is None else current.position
    cursor = view.inp.summary_through_position
    kept = tuple(cut for cut in view.state.user_cuts if cut[0] != position and cut[0] > cursor)
    least = min((tokens, *(cut[1] for cut in view.state.user_cuts if cut[0] == position)))
    return replace(view.state, user_cuts=(*kept, (position, max(least, 1))))
