"""Detection of subject changes in a conversation: gaps whose two sides share few words.

Lexical cohesion as in TextTiling (M. A. Hearst, "TextTiling: Segmenting Text into Multi-paragraph Subtopic Passages",
Computational Linguistics 23(1), 1997, pages 33-64). A block of words before a gap is compared with one after it. The
deeper the similarity is below the nearest peaks on both sides, the more likely the subject changes there. Here a block
consists of whole pieces, such as messages, and rare words weigh more (inverse document frequency).
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

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
