"""Choice of a segment's end: within the summary model's window, preferably at a long pause or a change of subject."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from statistics import mean, pstdev

from throughline.context.groups import split_at_cuts
from throughline.context.measure import Count
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.summary_prompt import LINE_TOKENS, TOOL_CHARACTERS, render_transcript
from throughline.context.summaries.topic_changes import BLOCK_WORDS, valley_depths
from throughline.domain.message import Message, Role, text_of

LONG_PAUSE = timedelta(minutes=30)
"""Pause after which a user has often begun a new subject: the usual limit of a visit in web statistics."""

LEAST_FILL = 0.5
"""Share of the fitting messages that a segment holds at least, so that there are few segments."""

DEEP_VALLEY = 2.0
"""Number of standard deviations above the mean from which a valley of similarity counts as a change of subject.

Tuned on 100 meetings of QMSum (`python -m benchmarks.segment_ends`). With 1.0 the same share of ends is right, but
there are 20 % more segments than with fixed sizes; with 2.0 there are 9 % more.
"""

CHARACTERS_A_TOKEN = 64
"""Characters per token of room beyond which a text is not counted: it is too long anyway."""


def first_segment(
    messages: Sequence[Message], *, room_tokens: int, max_messages: int | None, count: Count
) -> tuple[Message, ...]:
    """Return the first messages, which the next segment covers: at least one whole group.

    `room_tokens` is the most tokens of their transcript, by `count`. A first group that alone is larger is returned
    nevertheless. The remaining messages follow in further segments.
    """
    pieces = split_at_cuts(messages)
    fitting = fitting_pieces(pieces, room_tokens, max_messages, count)
    end = best_end(pieces, fitting)
    return tuple(message for piece in pieces[:end] for message in piece)


def best_end(pieces: Sequence[Sequence[Message]], fitting: int) -> int:
    """Return after how many of `pieces` a segment should end, at most `fitting`; after all of them if they fit.

    Only ends that leave the segment well filled count. The order of preference is: before the longest pause that is
    long; before the user turn with the largest change of subject; before the last user turn; as late as possible. A
    pause comes first because it marks a new subject more reliably than words do.
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
    """Return the numbers of pieces after which the segment holds at least LEAST_FILL of the messages, in order."""
    filled = list(accumulate(len(piece) for piece in pieces))
    return [end for end, messages in enumerate(filled, start=1) if messages >= LEAST_FILL * filled[-1]]


def _change_of_subject(pieces: Sequence[Sequence[Message]], fitting: int, starts: Sequence[int]) -> int | None:
    """Return the one of `starts` before which the subject changes most; None if no change is clear."""
    if len(starts) < 2:  # noqa: PLR2004  # a single start leaves no choice
        return None
    depths = valley_depths(_words_around(pieces, fitting))
    deepest = max(starts, key=lambda end: (depths[end], end))
    known = depths[1 : fitting + 1]
    return deepest if depths[deepest] > mean(known) + DEEP_VALLEY * pstdev(known) else None


def _words_around(pieces: Sequence[Sequence[Message]], fitting: int) -> list[frozenset[str]]:
    """Return the words of the fitting pieces, and of enough pieces after them to fill the last comparison block."""
    found = [_words(piece) for piece in pieces[:fitting]]
    behind = 0
    for piece in pieces[fitting:]:
        if behind >= BLOCK_WORDS:
            break
        found.append(_words(piece))
        behind += len(found[-1])
    return found


def _words(piece: Sequence[Message]) -> frozenset[str]:
    """Return the words of a piece; of a long text only the beginning, which shows its subject."""
    return frozenset().union(*(words_of(text_of(message.content)[:TOOL_CHARACTERS]) for message in piece))


def fitting_pieces(
    pieces: Sequence[Sequence[Message]], room_tokens: int, max_messages: int | None, count: Count
) -> int:
    """Return how many pieces fit both the room and the maximum number of messages, at least one."""
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
