"""How a summary grows in segments: which neighbours are merged, and how large each may be.

A segment made from messages is of level 0. Where they have no room together any more, four neighbours of one level
become one of the next: of n segments about 3 log4(n) are left, a fact is written anew about log4(n) times instead of n
times, and what stands before the merged ones keeps its bytes. While there is room nothing is merged. A rolling summary
is one segment of 1..p and needs no merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.summaries.render_summary import HEAD_TOKENS
from throughline.domain.summary import Segment

MERGED = 4
"""So many neighbours of one level are merged; one less is how many there may be for each level in use."""

LEAST_NODE_TOKENS = 64
"""Levels stop where a segment would have less than this: the highest level is then merged within itself."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """`segments[start:stop]` are to become one segment of `level` in at most `max_tokens`."""

    start: int
    stop: int
    level: int
    max_tokens: int


def segment_tokens(segments: Sequence[Segment], narrative_tokens: int, free_tokens: int) -> int:
    """Return what the text of the next segment made from messages may take.

    Its share of `narrative_tokens`, or as large a share of what the others leave of `free_tokens`.
    """
    node = _node_tokens(max((segment.level for segment in segments), default=0), narrative_tokens)
    spare = free_tokens - _whole_tokens(segments)
    return max(node, spare // (MERGED - 1) - HEAD_TOKENS)


def merge_due(segments: Sequence[Segment], narrative_tokens: int, free_tokens: int) -> MergeTask | None:
    """Return the next merge: of four neighbours of one level, lowest level first, oldest first.

    None while all have room in `free_tokens`, or where no four are neighbours. Merged ones get their share of
    `narrative_tokens`, which the kept facts leave in any case.
    """
    if _whole_tokens(segments) <= free_tokens:
        return None
    top = _most_levels(narrative_tokens) - 1
    levels = [min(segment.level, top) for segment in segments]
    for level in sorted(set(levels)):
        start = _run_of(level, levels)
        if start is not None:
            stop = start + MERGED
            merged = level + 1 if level < top else max(segment.level for segment in segments[start:stop])
            highest = max(merged, *(segment.level for segment in segments))
            return MergeTask(start, stop, merged, _node_tokens(highest, narrative_tokens))
    return None


def merge_of_large(segments: Sequence[Segment], narrative_tokens: int) -> MergeTask | None:
    """Return the merge into half the narrative of segments that were not made to fit it; None while they do.

    The newest stays as it is where the other half is enough for it.
    """
    if len(segments) < 2 or _whole_tokens(segments) <= narrative_tokens:  # noqa: PLR2004  # one cannot be merged
        return None
    half = narrative_tokens // 2
    stop = len(segments)
    if stop > 2 and _whole_tokens(segments[-1:]) <= half:  # noqa: PLR2004  # one cannot be merged
        stop -= 1
    level = max(segment.level for segment in segments)
    return MergeTask(0, stop, level, max(half - HEAD_TOKENS, 1))


def _most_levels(narrative_tokens: int) -> int:
    return max(narrative_tokens // ((MERGED - 1) * LEAST_NODE_TOKENS), 1)


def _node_tokens(highest_level: int, narrative_tokens: int) -> int:
    """Each level in use may hold three, which share the narrative evenly; head lines count."""
    levels = min(highest_level + 1, _most_levels(narrative_tokens))
    share = narrative_tokens // ((MERGED - 1) * levels)
    return max(share - HEAD_TOKENS, share // 2, 1)


def _whole_tokens(segments: Sequence[Segment]) -> int:
    return sum(segment.token_count + HEAD_TOKENS for segment in segments)


def _run_of(level: int, levels: Sequence[int]) -> int | None:
    """Return where the first four neighbours of `level` begin."""
    starts = range(len(levels) - MERGED + 1)
    return next((start for start in starts if all(found == level for found in levels[start : start + MERGED])), None)
