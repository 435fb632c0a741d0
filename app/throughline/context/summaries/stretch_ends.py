"""Where a stretch ends: at what fits the summariser, and rather at a long pause or before a new user turn."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate

from throughline.context.groups import split_at_cuts
from throughline.context.measure import Count
from throughline.context.summaries.transcript import LINE_TOKENS, render_transcript
from throughline.domain.message import Message, Role

LONG_PAUSE = timedelta(minutes=30)
"""Who comes back after so long has often begun something new: the usual bound of a visit in web statistics."""

LEAST_FILL = 0.5
"""A better place to end is looked for in the last part of what fits, so that stretches stay few."""

CHARACTERS_A_TOKEN = 64
"""More of a text than this for each token of room is not counted: it is too long anyhow."""


def first_stretch(
    messages: Sequence[Message], *, room_tokens: int, max_messages: int | None, count: Count
) -> tuple[Message, ...]:
    """Return the messages, from the first on, that the next stretch is to stand for; at least one whole group.

    `room_tokens` is what their transcript may take, by `count`; a first group that is larger alone is returned
    nevertheless. What is left over follows in further stretches.
    """
    pieces = split_at_cuts(messages)
    fitting = _fitting(pieces, room_tokens, max_messages, count)
    end = best_end(pieces, fitting)
    return tuple(message for piece in pieces[:end] for message in piece)


def best_end(pieces: Sequence[Sequence[Message]], fitting: int) -> int:
    """Return after how many of `pieces` a stretch should end, at most `fitting`.

    Everything, if it fits. Else, among the ends that leave the stretch well filled: before the longest pause that is
    long, else before the last start of a user turn, else as late as possible.
    """
    if fitting >= len(pieces):
        return len(pieces)
    ends = _well_filled(pieces[:fitting])
    pauses = {end: pieces[end][0].created_at - pieces[end - 1][-1].created_at for end in ends}
    longest = max(ends, key=lambda end: (pauses[end], end))
    if pauses[longest] >= LONG_PAUSE:
        return longest
    starts = [end for end in ends if pieces[end][0].role is Role.USER]
    return starts[-1] if starts else fitting


def _well_filled(pieces: Sequence[Sequence[Message]]) -> list[int]:
    """Return after how many pieces enough of their messages is in, in order."""
    filled = list(accumulate(len(piece) for piece in pieces))
    return [end for end, messages in enumerate(filled, start=1) if messages >= LEAST_FILL * filled[-1]]


def _fitting(pieces: Sequence[Sequence[Message]], room_tokens: int, max_messages: int | None, count: Count) -> int:
    """Return how many pieces fit the room and the number of messages, at least one."""
    tokens = messages = 0
    for index, piece in enumerate(pieces):
        messages += len(piece)
        if index and max_messages is not None and messages > max_messages:
            return index
        tokens += _tokens(piece, room_tokens, count)
        if index and tokens > room_tokens:
            return index
    return len(pieces)


def _tokens(piece: Sequence[Message], room_tokens: int, count: Count) -> int:
    text = render_transcript(piece)
    return count(text[: max(room_tokens, 1) * CHARACTERS_A_TOKEN]) + LINE_TOKENS * len(piece)
