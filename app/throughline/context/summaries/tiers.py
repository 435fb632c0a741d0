"""How a summary grows in stretches, and what it looks like: which neighbours are merged, how large each may be.

A stretch made from messages is of level 0. Where there are more than three for each level in use, four neighbours of
one level become one of the next: of n stretches about 3 log4(n) are left, a fact is written anew about log4(n) times
instead of n times, and what stands before the merged ones keeps its bytes. A level may hold more than three while
another holds fewer, so that no room lies idle. A rolling summary is one stretch of 1..p and needs no merging.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.measure import Count
from throughline.context.policy import SummaryKind
from throughline.context.summaries.ledger_text import render_ledger
from throughline.context.summaries.summary_text import HEAD_TOKENS, PARAGRAPH, narrative_text
from throughline.context.truncate import truncate_middle
from throughline.domain.ledger import LedgerEntry
from throughline.domain.summary import Stretch

NARRATIVE_PERCENT, INSTRUCTION_PERCENT = 60, 20
"""Parts of a hybrid summary's limit: the ledger has what the narrative leaves, standing instructions at most this."""

MERGED = 4
"""So many neighbours of one level are merged; one less is how many there may be for each level in use."""

LEAST_NODE_TOKENS = 64
"""Levels stop where a stretch would have less than this: the highest level is then merged within itself."""

JOIN_TOKENS = 2
"""The blank line between narrative and ledger."""


@dataclass(frozen=True, slots=True)
class SummaryRoom:
    """What the parts of a summary may take, in our tokens.

    `narrative_tokens` is for the text of one rolling stretch, or of all tiered ones with their head lines but one.
    `instruction_tokens` is the part of `ledger_tokens` that standing instructions may fill.
    """

    narrative_tokens: int
    ledger_tokens: int
    instruction_tokens: int


@dataclass(frozen=True, slots=True)
class MergeTask:
    """`stretches[start:stop]` are to become one stretch of `level` in at most `max_tokens`."""

    start: int
    stop: int
    level: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class RenderedSummary:
    """A summary as prompts show it, and its tokens by our count."""

    text: str
    tokens: int


def summary_room(limit_tokens: int, kind: SummaryKind) -> SummaryRoom:
    """Return how a summary of at most `limit_tokens` is divided; without a ledger all is the narrative's."""
    part = _narrative_part(limit_tokens, kind)
    narrative = max(part - HEAD_TOKENS, part // 2)
    if kind is SummaryKind.LLM:
        return SummaryRoom(narrative, 0, 0)
    ledger = max(limit_tokens - part - JOIN_TOKENS, 0)
    return SummaryRoom(narrative, ledger, min(limit_tokens * INSTRUCTION_PERCENT // 100, ledger))


def stretch_tokens(stretches: Sequence[Stretch], narrative_tokens: int) -> int:
    """Return what the text of the next stretch made from messages may take."""
    return _node_tokens(max((stretch.level for stretch in stretches), default=0), narrative_tokens)


def merge_due(stretches: Sequence[Stretch], narrative_tokens: int) -> MergeTask | None:
    """Return the next merge: of four neighbours of one level, lowest level first, oldest first.

    None while there are at most three stretches for each level in use and all fit, or where no four are neighbours.
    """
    top = _most_levels(narrative_tokens) - 1
    levels = [min(stretch.level, top) for stretch in stretches]
    if not _is_crowded(stretches, levels, narrative_tokens):
        return None
    for level in sorted(set(levels)):
        start = _run_of(level, levels)
        if start is not None:
            stop = start + MERGED
            merged = level + 1 if level < top else max(stretch.level for stretch in stretches[start:stop])
            highest = max(merged, *(stretch.level for stretch in stretches))
            return MergeTask(start, stop, merged, _node_tokens(highest, narrative_tokens))
    return None


def merge_of_large(stretches: Sequence[Stretch], narrative_tokens: int) -> MergeTask | None:
    """Return the merge into half the narrative of stretches that were not made to fit it; None while they do.

    The newest stays as it is where the other half is enough for it.
    """
    if len(stretches) < 2 or _whole_tokens(stretches) <= narrative_tokens:  # noqa: PLR2004  # one cannot be merged
        return None
    half = narrative_tokens // 2
    stop = len(stretches)
    if stop > 2 and _whole_tokens(stretches[-1:]) <= half:  # noqa: PLR2004  # one cannot be merged
        stop -= 1
    level = max(stretch.level for stretch in stretches)
    return MergeTask(0, stop, level, max(half - HEAD_TOKENS, 1))


def render_summary(
    stretches: Sequence[Stretch], ledger: Sequence[LedgerEntry], *, limit_tokens: int, kind: SummaryKind, count: Count
) -> RenderedSummary:
    """Return the text that stands for the stretches: oldest to newest, then the ledger; never above `limit_tokens`.

    The parts are fixed, so that the narrative of the same stretches does not change when the ledger grows.
    """
    room = summary_room(limit_tokens, kind)
    narrative = narrative_text(stretches, max_tokens=_narrative_part(limit_tokens, kind), count=count)
    facts = ""
    if ledger and room.ledger_tokens:
        facts = render_ledger(
            ledger, max_tokens=room.ledger_tokens, instruction_tokens=room.instruction_tokens, count=count
        )
    return _rendered(narrative, facts, limit_tokens, count)


def render_beside_instructions(
    stretches: Sequence[Stretch],
    instructions: Sequence[LedgerEntry],
    *,
    limit_tokens: int,
    aim_tokens: int,
    count: Count,
) -> RenderedSummary:
    """Return a hybrid summary without facts whose narrative is cut until the whole takes `aim_tokens`.

    The instructions keep their part, and the narrative `LEAST_NODE_TOKENS`, though the whole may then be above the aim.
    """
    room = summary_room(limit_tokens, SummaryKind.HYBRID)
    rules = render_ledger(
        instructions, max_tokens=room.ledger_tokens, instruction_tokens=room.instruction_tokens, count=count
    )
    left = max(aim_tokens - count(rules) - JOIN_TOKENS, LEAST_NODE_TOKENS)
    most = min(left, _narrative_part(limit_tokens, SummaryKind.HYBRID))
    return _rendered(narrative_text(stretches, max_tokens=most, count=count), rules, limit_tokens, count)


def _rendered(narrative: str, ledger: str, limit_tokens: int, count: Count) -> RenderedSummary:
    text = PARAGRAPH.join(part for part in (narrative, ledger) if part)
    if count(text) > limit_tokens:
        text = truncate_middle(text, limit_tokens, count, " of the summary")
    return RenderedSummary(text, count(text) if text else 0)


def _narrative_part(limit_tokens: int, kind: SummaryKind) -> int:
    return limit_tokens if kind is SummaryKind.LLM else limit_tokens * NARRATIVE_PERCENT // 100


def _most_levels(narrative_tokens: int) -> int:
    return max(narrative_tokens // ((MERGED - 1) * LEAST_NODE_TOKENS), 1)


def _node_tokens(highest_level: int, narrative_tokens: int) -> int:
    """Each level in use may hold three, which share the narrative evenly; head lines count."""
    levels = min(highest_level + 1, _most_levels(narrative_tokens))
    share = narrative_tokens // ((MERGED - 1) * levels)
    return max(share - HEAD_TOKENS, share // 2, 1)


def _is_crowded(stretches: Sequence[Stretch], levels: Sequence[int], narrative_tokens: int) -> bool:
    """Stretches made when fewer levels were in use are larger than those of today: their tokens count too."""
    slots = (MERGED - 1) * (max(levels, default=0) + 1)
    return len(stretches) > slots or _whole_tokens(stretches) > narrative_tokens


def _whole_tokens(stretches: Sequence[Stretch]) -> int:
    return sum(stretch.token_count + HEAD_TOKENS for stretch in stretches)


def _run_of(level: int, levels: Sequence[int]) -> int | None:
    """Return where the first four neighbours of `level` begin."""
    starts = range(len(levels) - MERGED + 1)
    return next((start for start in starts if all(found == level for found in levels[start : start + MERGED])), None)
