"""The rungs of the last ladder: each makes a view smaller in one way, as far as needed and no further.

A rung takes a view that is over `limit` (our tokens) and returns a smaller one, or the same where it cannot help.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

from app.context.measure import count_message, count_system
from app.context.shrink import fair_level, shrink_message
from app.context.truncate import truncate_middle
from app.context.view import NO_NOTE, Note, Part, View
from app.domain.prompt import PromptMessage

Rung: TypeAlias = Callable[[View, int], View]

HOPELESS_USER_SHARE = 0.5
"""A user's text that could never fit is cut to this share of the room first, so that it is not all there is."""

SUMMARY_CAP_SHARE, SUMMARY_FLOOR_SHARE = 0.30, 0.15
"""A summary above the cap is always cut to it; it is cut down to the floor where that alone makes the prompt fit."""

BIG_SHARE = 0.05
BIG_TOKENS = 2000
SMALLEST_SHOWN = 48
"""A message is big, and may be truncated, above this share of the room (at most so many tokens, at least so few)."""

LEVEL_TRIES = 4
"""How often a level is lowered because some messages could not be cut to it."""

NAMED_TOOLS = 5
NAME_CHARACTERS = 32
NOTE_SLACK = 16
"""Tokens by which a note may grow with the numbers in it."""


def cap_hopeless_user_text(view: View, limit: int) -> View:
    """Cut a user's text that does not fit even alone; it would otherwise push everything else out and be cut too."""
    if view.current is None:
        return view
    alone = count_system(view.inp.system_prompt, view.inp.count) + view.inp.tools_tokens
    if view.current.tokens <= limit - alone:
        return view
    return replace(view, current=_shrunk(view.current, int(limit * HOPELESS_USER_SHARE), view))


def shorten_summary(view: View, limit: int) -> View:
    """Cut the summary: to the floor if that is enough, else only what is above its cap."""
    if not view.summary:
        return view
    size = view.inp.count(view.summary)
    needed = size - (view.tokens - limit)
    floor, cap = int(SUMMARY_FLOOR_SHARE * limit), int(SUMMARY_CAP_SHARE * limit)
    allowed = needed if needed >= floor else cap
    if size <= allowed:
        return view
    return view.with_summary(truncate_middle(view.summary, allowed, view.inp.count, " of the summary"))


def truncate_big_messages(view: View, limit: int) -> View:
    """Show big messages middle-out, all to one level, the user's current text not among them."""
    smallest = max(min(int(limit * BIG_SHARE), BIG_TOKENS), SMALLEST_SHOWN)
    return _truncate(view, limit, smallest, with_past=True)


def trim_oldest(view: View, limit: int) -> View:
    """Leave out the oldest groups before the user's current message, as few as possible."""
    if not view.past:
        return view
    freed = list(accumulate((part.tokens for part in view.past), initial=0))
    fixed = view.tokens - view.trimmed.tokens
    everything = _trim_note(view, view.past)
    for dropped in range(1, len(view.past) + 1):
        if fixed - freed[dropped] + everything.tokens + NOTE_SLACK <= limit:
            note = _trim_note(view, view.past[:dropped])
            trimmed = replace(view, past=view.past[dropped:], trimmed=note)
            if trimmed.tokens <= limit:
                return trimmed
    return replace(view, past=(), trimmed=everything)


def squeeze_running_steps(view: View, limit: int) -> View:
    """Show the running turn's results as short as they can be read."""
    return _truncate(view, limit, SMALLEST_SHOWN, with_past=False)


def fold_running_steps(view: View, limit: int) -> View:
    """Show the oldest steps of the running turn as one short text, as few as possible."""
    if not view.running:
        return view
    freed = list(accumulate((part.tokens for part in view.running), initial=0))
    fixed = view.tokens - view.folded.tokens
    everything = _fold_note(view, view.running)
    for dropped in range(1, len(view.running)):
        if fixed - freed[dropped] + everything.tokens + NOTE_SLACK <= limit:
            note = _fold_note(view, view.running[:dropped])
            folded = replace(view, running=view.running[dropped:], folded=note)
            if folded.tokens <= limit:
                return folded
    return replace(view, running=(), folded=everything)


def drop_summary(view: View, limit: int) -> View:
    """Leave the summary out of this one prompt; a note says that there was more."""
    del limit
    if not view.summary:
        return view
    bare = view.with_summary("")
    return replace(bare, trimmed=_trim_note(bare, view.past[:0]))


def truncate_user_text(view: View, limit: int) -> View:
    """Cut the user's current text, from what was stored, to what room there is."""
    if view.current is None or view.whole_current is None:
        return view
    room = limit - (view.tokens - view.current.tokens)
    whole = view.whole_current
    return replace(view, current=whole if whole.tokens <= room else _shrunk(whole, room, view))


def drop_notes(view: View, limit: int) -> View:
    """Give the room of the notes to the user's text, in windows so small that nothing else is left to give."""
    bare = replace(view, trimmed=replace(NO_NOTE, positions=view.trimmed.positions))
    if bare.current is not None:
        bare = replace(bare, folded=replace(NO_NOTE, positions=view.folded.positions))
    return truncate_user_text(bare, limit)


LADDER: tuple[tuple[str, Rung], ...] = (
    ("user_text_capped", cap_hopeless_user_text),
    ("summary_shortened", shorten_summary),
    ("messages_truncated", truncate_big_messages),
    ("oldest_trimmed", trim_oldest),
    ("steps_squeezed", squeeze_running_steps),
    ("steps_folded", fold_running_steps),
    ("summary_dropped", drop_summary),
    ("user_text_truncated", truncate_user_text),
    ("notes_dropped", drop_notes),
)
"""The rungs in the order they are tried; after each one the view is measured again."""


def _truncate(view: View, limit: int, smallest: int, *, with_past: bool) -> View:
    """Cut all messages above one level to it; lower the level where names and framing did not give way."""
    parts = (*view.past, *view.running) if with_past else view.running
    sizes = [tokens for part in parts for tokens in part.counts]
    level = max(fair_level(sizes, limit - (view.tokens - sum(sizes))), smallest)
    cut = view
    for _ in range(LEVEL_TRIES):
        big = sum(size > level for size in sizes)
        if not big:
            break
        running = tuple(_truncated(part, level, view) for part in view.running)
        past = tuple(_truncated(part, level, view) for part in view.past) if with_past else view.past
        cut = replace(view, past=past, running=running)
        if cut.tokens <= limit or level == smallest:
            break
        level = max(level - (cut.tokens - limit) // big - 1, smallest)
    return cut


def _truncated(part: Part, level: int, view: View) -> Part:
    return part if max(part.counts) <= level else _shrunk(part, level, view)


def _shrunk(part: Part, level: int, view: View) -> Part:
    messages: list[PromptMessage] = []
    counts: list[int] = []
    for message, tokens in zip(part.messages, part.counts, strict=True):
        shown, size = message, tokens
        if tokens > level:
            smaller = shrink_message(message, level, view.inp.count)
            smaller_size = count_message(smaller, view.inp.count)
            shown, size = (smaller, smaller_size) if smaller_size < tokens else (message, tokens)
        messages.append(shown)
        counts.append(size)
    return Part(tuple(messages), tuple(counts))


def _trim_note(view: View, parts: Sequence[Part]) -> Note:
    """The range begins at the cursor (at 1 where the summary is left out too): all of it is missing here."""
    positions = (*view.trimmed.positions, *(position for part in parts for position in part.positions))
    first = view.inp.summary_through_position + 1 if view.summary else 1
    last = max((*positions, view.inp.summary_through_position))
    text = f"[Earlier messages {_span(first, last)} are not shown here.]" if last >= first else "[…]"
    return Note(text, _note_tokens(text, view), positions)


def _fold_note(view: View, parts: Sequence[Part]) -> Note:
    positions = (*view.folded.positions, *(position for part in parts for position in part.positions))
    calls = [call for part in parts for message in part.messages for call in message.tool_calls]
    names = dict.fromkeys(call.name[:NAME_CHARACTERS] for call in calls)
    named = ", ".join(list(names)[:NAMED_TOOLS]) + (", …" if len(names) > NAMED_TOOLS else "")
    span = _span(min(positions), max(positions)) if positions else ""
    text = f"[Steps {span} of this turn are folded: {len(calls)} tool calls ({named}) and their results.]"
    return Note(text, _note_tokens(text, view), positions)


def _span(first: int, last: int) -> str:
    return f"#{first}" if first == last else f"#{first}-#{last}"


def _note_tokens(text: str, view: View) -> int:
    return count_message(Note(text).messages[0], view.inp.count)
