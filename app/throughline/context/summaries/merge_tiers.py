"""Growth of a tiered summary: which neighbouring segments are merged, and how large each may be.

A segment made from messages has level 0. If segments no longer fit together, four neighbours of one level are merged
into one of the next. Of n segments about 3 log4(n) remain, and a fact is rewritten about log4(n) times instead of n
times. The text before the merged segments keeps its bytes. While there is room, nothing is merged. A rolling summary is
one segment of messages 1 to p and needs no merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.summaries.render_summary import HEAD_TOKENS
from throughline.domain.summary import Segment

MERGED = 4
"""Number of neighbours of one level that are merged; each level in use may have one fewer."""

LEAST_NODE_TOKENS = 64
"""Least tokens of a segment's text, which limits the number of levels.

Segments of the highest level are merged into one of the same level.
"""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A merge to do: `segments[start:stop]` become one segment of `level` with at most `max_tokens`."""

    start: int
    stop: int
    level: int
    max_tokens: int


def segment_tokens(segments: Sequence[Segment], narrative_tokens: int, free_tokens: int) -> int:
    """Return the most tokens of the text of the next segment that is made from messages.

    It is the segment's share of `narrative_tokens`, or, if more, a third of what the other segments leave of
    `free_tokens`.
    """
    node = _node_tokens(max((segment.level for segment in segments), default=0), narrative_tokens)
    spare = free_tokens - _whole_tokens(segments)
    return max(node, spare // (MERGED - 1) - HEAD_TOKENS)


def merge_due(segments: Sequence[Segment], narrative_tokens: int, free_tokens: int) -> MergeTask | None:
    """Return the next merge of four neighbours of one level: the lowest level first, the oldest first.

    None while all segments fit `free_tokens`, or if no four neighbours have one level. Merged segments get their share
    of `narrative_tokens`, which is reserved whatever the kept facts take.
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
    """Return the merge of segments too large for the narrative into one of half its size; None while they fit.

    The newest segment stays as it is if it fits the other half.
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
    """Return the share of one segment: each level in use may have three, which share the narrative evenly.

    The head lines count, too.
    """
    levels = min(highest_level + 1, _most_levels(narrative_tokens))
    share = narrative_tokens // ((MERGED - 1) * levels)
    return max(share - HEAD_TOKENS, share // 2, 1)


def _whole_tokens(segments: Sequence[Segment]) -> int:
    return sum(segment.token_count + HEAD_TOKENS for segment in segments)


def _run_of(level: int, levels: Sequence[int]) -> int | None:
    """Return the index at which the first four neighbours of `level` begin; None if there are none."""
    starts = range(len(levels) - MERGED + 1)
    return next((start for start in starts if all(found == level for found in levels[start : start + MERGED])), None)
