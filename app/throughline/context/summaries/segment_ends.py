"""Where a segment ends: at what fits the summariser, and rather at a long pause or where the subject changes."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from statistics import mean, pstdev

from throughline.context.groups import split_at_cuts
from throughline.context.measure import Count
from throughline.context.summaries.cohesion import BLOCK_WORDS, valley_depths
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.summary_prompt import LINE_TOKENS, TOOL_CHARACTERS, render_transcript
from throughline.domain.message import Message, Role, text_of

LONG_PAUSE = timedelta(minutes=30)
"""Who comes back after so long has often begun something new: the usual bound of a visit in web statistics."""

LEAST_FILL = 0.5
"""A better place to end is looked for in the last part of what fits, so that segments stay few."""

DEEP_VALLEY = 2.0
"""A change of subject is a valley deeper than the mean by so many standard deviations.

Tuned on 100 meetings of QMSum (`python -m benchmarks.segment_ends`): with 1.0 the same share of ends is right, and
there are 20 % more segments than of fixed sizes, with 2.0 9 % more.
"""

CHARACTERS_A_TOKEN = 64
"""More of a text than this for each token of room is not counted: it is too long anyhow."""


def first_segment(
    messages: Sequence[Message], *, room_tokens: int, max_messages: int | None, count: Count
) -> tuple[Message, ...]:
    """Return the messages, from the first on, that the next segment is to stand for; at least one whole group.

    `room_tokens` is what their transcript may take, by `count`; a first group that is larger alone is returned
    nevertheless. What is left over follows in further segments.
    """
    pieces = split_at_cuts(messages)
    fitting = fitting_pieces(pieces, room_tokens, max_messages, count)
    end = best_end(pieces, fitting)
    return tuple(message for piece in pieces[:end] for message in piece)


def best_end(pieces: Sequence[Sequence[Message]], fitting: int) -> int:
    """Return after how many of `pieces` a segment should end, at most `fitting`.

    Everything, if it fits. Else, among the ends that leave the segment well filled: before the longest pause that is
    long, else before the user turn where the subject changes most, else before the last user turn, else as late as
    possible. A pause comes first: who was away for long begins anew more surely than words can tell.
    """
    if fitting >= len(pieces):
        return len(pieces)
    ends = well_filled(pieces[:fitting])
    pauses = {end: pieces[end][0].created_at - pieces[end - 1][-1].created_at for end in ends}
    longest = max(ends, key=lambda end: (pauses[end], end))
    if pauses[longest] >= LONG_PAUSE:
        return longest
    starts = [end for end in ends if pieces[end][0].role is Role.USER] or [fitting]
    return _change_of_subject(pieces, fitting, starts) or starts[-1]


def well_filled(pieces: Sequence[Sequence[Message]]) -> list[int]:
    """Return after how many pieces enough of their messages is in, in order."""
    filled = list(accumulate(len(piece) for piece in pieces))
    return [end for end, messages in enumerate(filled, start=1) if messages >= LEAST_FILL * filled[-1]]


def _change_of_subject(pieces: Sequence[Sequence[Message]], fitting: int, starts: Sequence[int]) -> int | None:
    """Return before which of the `starts` the subject changes most; None where it does not change clearly."""
    if len(starts) < 2:  # noqa: PLR2004  # of one there is nothing to choose
        return None
    depths = valley_depths(_words_around(pieces, fitting))
    deepest = max(starts, key=lambda end: (depths[end], end))
    known = depths[1 : fitting + 1]
    return deepest if depths[deepest] > mean(known) + DEEP_VALLEY * pstdev(known) else None


def _words_around(pieces: Sequence[Sequence[Message]], fitting: int) -> list[frozenset[str]]:
    """Return the words of the pieces that fit, and of as many behind them as the block after the last gap takes."""
    found = [_words(piece) for piece in pieces[:fitting]]
    behind = 0
    for piece in pieces[fitting:]:
        if behind >= BLOCK_WORDS:
            break
        found.append(_words(piece))
        behind += len(found[-1])
    return found


def _words(piece: Sequence[Message]) -> frozenset[str]:
    """Of a long text the beginning says what it is about."""
    return frozenset().union(*(words_of(text_of(message.content)[:TOOL_CHARACTERS]) for message in piece))


def fitting_pieces(
    pieces: Sequence[Sequence[Message]], room_tokens: int, max_messages: int | None, count: Count
) -> int:
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
