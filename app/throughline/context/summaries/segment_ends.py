"""Where a segment ends: within the summary model's window, preferably at a long pause or a change of subject."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from statistics import mean, pstdev

from throughline.context.measure import Count
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.summary_prompt import LINE_TOKENS, TOOL_CHARACTERS, render_transcript
from throughline.context.view.groups import split_at_cuts
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


# Detection of subject changes in a conversation: gaps whose two sides share few words.
#
# Lexical cohesion as in TextTiling (M. A. Hearst, "TextTiling: Segmenting Text into Multi-paragraph Subtopic Passages",
# Computational Linguistics 23(1), 1997, pages 33-64). A block of words before a gap is compared with one after it. The
# deeper the similarity is below the nearest peaks on both sides, the more likely the subject changes there. Here a
# block consists of whole pieces, such as messages, and rare words weigh more (inverse document frequency).

BLOCK_WORDS = 300
"""Words on each side of a gap. On meetings of QMSum 300 found more borders than 100, 150, 200 or 400."""

ROUNDED = 9
"""Decimals of a similarity; smaller differences are rounding errors of the running sums."""


@dataclass(slots=True)
class _Block:
    """The words on one side of a gap: the count of each, their number, and the squared length of their vector."""

    counts: Counter[str] = field(default_factory=Counter)
    words: int = 0
    square: float = 0.0


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Both sides of a moving gap; each change costs time in proportion to the words added or removed."""

    weights: Mapping[str, float]
    left: _Block = field(default_factory=_Block)
    right: _Block = field(default_factory=_Block)

    def change(self, block: _Block, words: Collection[str], step: int) -> float:
        """Add the words to the block (`step` 1) or remove them (-1); return the change of the blocks' dot product."""
        other = self.right if block is self.left else self.left
        product = 0.0
        for word in words:
            before, after = block.counts[word], block.counts[word] + step
            weight = self.weights[word]
            block.square += weight * (_damped(after) ** 2 - _damped(before) ** 2)
            product += weight * (_damped(after) - _damped(before)) * _damped(other.counts[word])
            block.counts[word] = after
        block.words += step * len(words)
        return product


def valley_depths(pieces: Sequence[Collection[str]]) -> list[float]:
    """Return for each piece, given by its distinct words, the depth of the similarity valley before it.

    The depth ranges from 0 (same subject, and before the first piece) to 2. The time is linear in the number of words.
    """
    similar = _similarities(pieces)
    left, right = list(similar), list(similar)
    for gap in range(2, len(similar)):
        if similar[gap - 1] >= similar[gap]:
            left[gap] = left[gap - 1]
    for gap in range(len(similar) - 2, 0, -1):
        if similar[gap + 1] >= similar[gap]:
            right[gap] = right[gap + 1]
    return [one + other - 2 * valley for one, other, valley in zip(left, right, similar, strict=True)]


def _similarities(pieces: Sequence[Collection[str]]) -> list[float]:
    """Return for each piece the cosine of the blocks before and after the gap in front of it; 1 if one is empty."""
    blocks = _Blocks(_weights(pieces))
    left, right = blocks.left, blocks.right
    found = [1.0] * len(pieces)
    first = end = 0
    product = 0.0
    for gap in range(len(pieces)):
        if gap:
            product += blocks.change(right, pieces[gap - 1], -1) + blocks.change(left, pieces[gap - 1], 1)
        while first < gap - 1 and left.words - len(pieces[first]) >= BLOCK_WORDS:
            product += blocks.change(left, pieces[first], -1)
            first += 1
        while end < len(pieces) and (end <= gap or right.words < BLOCK_WORDS):
            product += blocks.change(right, pieces[end], 1)
            end += 1
        length = math.sqrt(max(left.square, 0.0) * max(right.square, 0.0))
        found[gap] = round(product / length, ROUNDED) if round(length, ROUNDED) else 1.0
    return found


def _weights(pieces: Sequence[Collection[str]]) -> dict[str, float]:
    """Return the square of each word's inverse document frequency; a word in all pieces weighs nothing."""
    frequencies = Counter(word for piece in pieces for word in piece)
    return {word: math.log(len(pieces) / count) ** 2 for word, count in frequencies.items()}


def _damped(count: int) -> float:
    """Return the logarithmic weight of a word's count: frequent words weigh more, but not proportionally."""
    return 1 + math.log(count) if count else 0.0
