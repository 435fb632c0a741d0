"""The words in which two texts differ, for the page that shows two versions of a summary beside each other."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from throughline.execution.compute_threads import run_off_loop_if_large

MOST_CHARACTERS, MOST_WORDS = 60_000, 4_000
"""What is compared of a text: its beginning."""

MOST_STEPS = 20 * MOST_WORDS
"""Words that are visited for one comparison. Usual texts need a few for each of theirs; others would take minutes."""

LARGE = 2_000
"""Characters of both texts from which they are compared off the event loop."""

_WORD = re.compile(r"(\S+)(\s*)")


@dataclass(frozen=True, slots=True)
class WordPiece:
    """Consecutive words of a text, and the space behind them; `is_changed` ones are not in the other text."""

    text: str
    space: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class WordChanges:
    """Two texts as pieces; with `is_cut` only their beginnings."""

    left: Sequence[WordPiece]
    right: Sequence[WordPiece]
    is_cut: bool

    @property
    def is_any(self) -> bool:
        """Whether the texts differ in a word."""
        return any(piece.is_changed for piece in (*self.left, *self.right))


async def compare_words(left: str, right: str) -> WordChanges:
    """Return the two texts with their differences marked. Space between words is not compared."""
    return await run_off_loop_if_large(len(left) + len(right), lambda: _compare(left, right), large=LARGE)


def _compare(left: str, right: str) -> WordChanges:
    (before, is_left_cut), (after, is_right_cut) = _words(left), _words(right)
    common = _common_words([word for word, _ in before], [word for word, _ in after])
    return WordChanges(
        tuple(_pieces(before, [(start, start + size) for start, _, size in common])),
        tuple(_pieces(after, [(start, start + size) for _, start, size in common])),
        is_left_cut or is_right_cut,
    )


def _words(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Return at most MOST_WORDS words, each with the space behind it, and whether some of the text was left out."""
    words = _WORD.findall(text[:MOST_CHARACTERS])
    return words[:MOST_WORDS], len(text) > MOST_CHARACTERS or len(words) > MOST_WORDS


def _common_words(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the blocks that both have, as starts and length: the longest one, then those before and behind it.

    This is what `SequenceMatcher.get_matching_blocks` does, but it ends after MOST_STEPS.
    """
    matcher, steps = SequenceMatcher(None, left, right), MOST_STEPS
    regions, found = [(0, len(left), 0, len(right))], []
    while regions and steps > 0:
        start, end, first, last = regions.pop()
        steps -= end - start
        block = matcher.find_longest_match(start, end, first, last)
        if block.size:
            found.append((block.a, block.b, block.size))
            regions.append((start, block.a, first, block.b))
            regions.append((block.a + block.size, end, block.b + block.size, last))
    return sorted(found)


def _pieces(words: Sequence[tuple[str, str]], common: Sequence[tuple[int, int]]) -> Iterator[WordPiece]:
    at = 0
    for start, end in (*common, (len(words), len(words))):
        for first, last, is_changed in ((at, start, True), (start, end, False)):
            if first < last:
                text = "".join(word + space for word, space in words[first:last])
                space = words[last - 1][1]
                yield WordPiece(text.removesuffix(space), space, is_changed)
        at = end
