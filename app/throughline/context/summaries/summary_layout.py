"""How a summary's room is divided among segments and kept facts, and which segments are merged when it is full.

A segment made from messages has level 0. If segments no longer fit together, four neighbours of one level are merged
into one of the next. Of n segments about 3 log4(n) remain, and a fact is rewritten about log4(n) times instead of n
times. The text before the merged segments keeps its bytes. While there is room, nothing is merged. A rolling summary
is one segment of messages 1 to p and needs no merging.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from throughline.context.measure import Count
from throughline.context.policy import SummaryKind
from throughline.context.summaries.change_words import changes
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.summaries.find_facts import without_kept
from throughline.context.summaries.kept_facts_text import EVEN, render_facts, render_instructions
from throughline.context.summaries.readable_text import one_line
from throughline.context.summaries.render_summary import HEAD_TOKENS, PARAGRAPH, narrative_text
from throughline.context.summaries.statements import telling_share
from throughline.context.view.shrink_message import truncate_middle
from throughline.domain.summary import KeptFact, Segment

NARRATIVE_PERCENT, ROLLING_PERCENT, INSTRUCTION_PERCENT = 30, 60, 25
"""Shares of a summary's limit: the narrative, most of a rolling one, and instructions before free room is added."""

GROWTH_SHARE = 0.75
"""How much a summary with its facts may grow, as a share of the messages that it adds: a compaction frees a part."""

STATED_GROWTH_SHARE = 0.4
"""As GROWTH_SHARE, with the facts that are only stated: such facts fill a summary, but not as far.

A small summary may have them up to half of what it adds.
"""

JOIN_TOKENS = 2
"""Tokens of the blank line between two parts."""

SENTENCE_STARTS = "\n.:;!?-–•*])\"'“”„`。：；"
"""Signs before a sentence or a quotation."""

_PLACE = re.compile(r"\[#\d{1,9}\]")

MERGED = 4
"""Number of neighbours of one level that are merged; each level in use may have one fewer."""

LEAST_NODE_TOKENS = 64
"""Least tokens of a segment's text, which limits the number of levels.

Segments of the highest level are merged into one of the same level.
"""


@dataclass(frozen=True, slots=True)
class SummaryLayout:
    """Division of a summary of at most `limit_tokens`, counted by `count`; with the kind `llm` all is narrative."""

    limit_tokens: int
    kind: SummaryKind
    count: Count

    @property
    def narrative_tokens(self) -> int:
        """The tokens reserved for the segments, including all their head lines but one."""
        part = self.limit_tokens
        if self.kind is SummaryKind.HYBRID:
            part = part * NARRATIVE_PERCENT // 100
        return max(part - HEAD_TOKENS, part // 2)

    @property
    def rolling_tokens(self) -> int:
        """The most tokens of a rolling summary's single text, which is read and rewritten, and paid for, every time."""
        return max(self.limit_tokens * ROLLING_PERCENT // 100 - HEAD_TOKENS, self.narrative_tokens)

    def free_narrative_tokens(self, facts: Sequence[KeptFact], segments: Sequence[Segment]) -> int:
        """Return the tokens that the texts of `segments` may take, given `facts`.

        It is the narrative's own share, plus the room that the facts leave free. Only current facts count that no
        model has passed over more often than chosen, and that the texts do not state already.
        """
        left = self.fact_tokens(facts)
        beside = _beside("\n".join(segment.text for segment in segments), mattering(facts))
        return self.narrative_tokens + max(left - self.count(self._facts(beside, left)), 0)

    def fact_tokens(self, facts: Sequence[KeptFact]) -> int:
        """Return the tokens reserved for facts other than instructions; 0 with the kind `llm` (narrative only)."""
        rules = self.count(self._instructions(facts))
        return max(self.limit_tokens - self.narrative_tokens - HEAD_TOKENS - rules - 2 * JOIN_TOKENS, 0)

    def render(
        self,
        segments: Sequence[Segment],
        facts: Sequence[KeptFact],
        added_tokens: int | None = None,
        before_tokens: int = 0,
    ) -> tuple[str, int]:
        """Return the summary and its tokens: the segments from oldest to newest, then instructions and kept facts.

        It replaces a summary of `before_tokens` and messages of `added_tokens`, and grows by GROWTH_SHARE of these at
        most; None: up to its limit. Each part has a share of the room, and gets what the others do not need. The
        narrative's share is smaller if few of its sentences tell anything.
        """
        if self.kind is SummaryKind.LLM:
            return self._joined([narrative_text(segments, max_tokens=self.limit_tokens, count=self.count)])
        added = 2 * self.limit_tokens if added_tokens is None else added_tokens
        replaced = max(before_tokens + added, SMALL_SUMMARY_TOKENS)
        aim, stated = self._aims(before_tokens, added)
        told = marked(segments, facts)
        share = int(self.narrative_tokens * telling_share("\n".join(segment.text for segment in segments)))
        needed = self.count(narrative_text(told, max_tokens=self.limit_tokens, count=self.count))
        beside = _beside("\n".join(segment.text for segment in segments), facts)
        of_facts = self.count(self._facts(beside, self.limit_tokens)) + 2 * JOIN_TOKENS
        rules = self._instructions(facts, aim - of_facts - min(needed, share))
        of_rules = self.count(rules) + JOIN_TOKENS if rules else 0
        most = max(share + HEAD_TOKENS, aim - of_facts - of_rules)
        if rules:
            most = min(most, max(replaced - 1 - of_rules, LEAST_NODE_TOKENS))
        narrative = narrative_text(told, max_tokens=most, count=self.count)
        rest = self._rest(narrative, rules, facts, (aim, stated))
        shown = f"{rules}\n{rest}"
        return self._joined([without_kept(narrative, [fact for fact in facts if fact.text in shown]), rules, rest])

    def _aims(self, before_tokens: int, added_tokens: int) -> tuple[int, int]:
        """Return the tokens up to which a summary grows, and up to which it does with facts that are only stated."""
        small = int(GROWTH_SHARE * SMALL_SUMMARY_TOKENS)
        stated = max(before_tokens + int(STATED_GROWTH_SHARE * added_tokens), min(added_tokens // 2, small))
        return min(self.limit_tokens, max(before_tokens + int(GROWTH_SHARE * added_tokens), small)), stated

    def _rest(self, narrative: str, rules: str, facts: Sequence[KeptFact], most: tuple[int, int]) -> str:
        """Return the facts beside the other parts, as far as the whole summary takes at most `most` tokens.

        The second number is for a summary with facts that are only stated. If there is nothing else, these take it all:
        a summary of nothing would lose what its messages state.
        """
        said = self.count(PARAGRAPH.join((narrative, rules))) + JOIN_TOKENS
        beside, aim, stated = _beside(narrative, facts), most[0] - said, min(most) - said
        certain = self._facts([fact for fact in beside if not fact.is_only_stated], aim, facts)
        kept = certain if self.count(certain) >= stated else self._facts(beside, stated, facts)
        return kept or ("" if narrative or rules else self._facts(beside, aim, facts))

    def _instructions(self, facts: Sequence[KeptFact], free_tokens: int = 0) -> str:
        """Return the instructions in their share of the limit, or in `free_tokens` if those are more."""
        most = max(self.limit_tokens * INSTRUCTION_PERCENT // 100, free_tokens)
        return render_instructions(facts, max_tokens=most, count=self.count)

    def _facts(self, facts: Sequence[KeptFact], max_tokens: int, all_facts: Sequence[KeptFact] | None = None) -> str:
        return render_facts(facts, max_tokens=max_tokens, count=self.count, all_facts=all_facts)

    def _joined(self, parts: Sequence[str]) -> tuple[str, int]:
        text = PARAGRAPH.join(part for part in parts if part)
        if self.count(text) > self.limit_tokens:
            text = truncate_middle(text, self.limit_tokens, self.count, " of the summary")
        return text, self.count(text) if text else 0


def _beside(narrative: str, facts: Sequence[KeptFact]) -> list[KeptFact]:
    """Return the facts that the narrative does not state word for word.

    Replaced facts and facts that state a change are always returned: the narrative may repeat the old value later on.
    """
    lines = "\n".join(map(one_line, narrative.splitlines()))
    return [fact for fact in facts if fact.replaced_by or changes(fact.text) or not _stands_in(fact.text, lines)]


def _stands_in(text: str, lines: str) -> bool:
    """Return whether `lines` say the text at the beginning of a line or sentence: behind "not that" they deny it."""
    at = lines.find(text)
    while at >= 0:
        before = lines[:at].rstrip(" ")
        if not before or before[-1] in SENTENCE_STARTS:
            return True
        at = lines.find(text, at + 1)
    return False


def marked(segments: Sequence[Segment], facts: Sequence[KeptFact]) -> tuple[Segment, ...]:
    """Return the segments with citations marked as replaced.

    A citation `[#12]` is marked if every fact kept from message 12 was replaced by a later one.
    """
    ended: dict[str, int] = {}
    for fact in facts:
        ended[f"[#{fact.position}]"] = min(fact.replaced_by, ended.get(f"[#{fact.position}]", fact.replaced_by))
    marks = {place: f"{place[:-1]}, replaced by #{by}]" for place, by in ended.items() if by}

    def mark(place: re.Match[str]) -> str:
        return marks.get(place[0], place[0])

    return tuple(replace(segment, text=_PLACE.sub(mark, segment.text)) for segment in segments)


def mattering(facts: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return the facts for which the narrative makes room.

    They are not replaced, and no model passed them over more often than it chose them.
    """
    return tuple(fact for fact in facts if not fact.replaced_by and fact.score >= EVEN)


MergeTask: TypeAlias = tuple[slice, int, int]
"""A merge to do: which segments become one, of which level, and its most tokens."""


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
            return slice(start, stop), merged, _node_tokens(highest, narrative_tokens)
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
    return slice(0, stop), level, max(half - HEAD_TOKENS, 1)


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
