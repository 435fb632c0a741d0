"""How a summary is divided into narrative, standing instructions and kept facts, and the text made of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from throughline.context.measure import Count
from throughline.context.policy import SummaryKind
from throughline.context.summaries.kept_facts_text import EVEN, render_facts, render_instructions
from throughline.context.summaries.later_statements import changes
from throughline.context.summaries.merge_tiers import LEAST_NODE_TOKENS
from throughline.context.summaries.render_summary import HEAD_TOKENS, PARAGRAPH, narrative_text
from throughline.context.summaries.sentences import one_line
from throughline.context.truncate_text import truncate_middle
from throughline.domain.kept_facts import KeptFact
from throughline.domain.summary import Segment

NARRATIVE_PERCENT, ROLLING_PERCENT, INSTRUCTION_PERCENT = 30, 60, 25
"""Parts of a summary's limit: what the narrative has at least, a rolling one at most, and instructions at most."""

SHRUNK_TO = 0.75
"""With its facts a summary takes at most this share of what it replaces: a compaction must free a real part."""

JOIN_TOKENS = 2
"""The blank line between two parts."""

_PLACE = re.compile(r"\[#\d{1,9}\]")


@dataclass(frozen=True, slots=True)
class RenderedSummary:
    """A summary as prompts show it, and its tokens by our count."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class SummaryLayout:
    """How a summary of at most `limit_tokens` by `count` is divided; of the kind `llm` all is the narrative's."""

    limit_tokens: int
    kind: SummaryKind
    count: Count

    @property
    def narrative_tokens(self) -> int:
        """What the segments may take whatever else there is, with their head lines but one."""
        part = self.limit_tokens
        if self.kind is SummaryKind.HYBRID:
            part = part * NARRATIVE_PERCENT // 100
        return max(part - HEAD_TOKENS, part // 2)

    @property
    def rolling_tokens(self) -> int:
        """What one text that is read and written anew each time may take at most: it is paid for each time."""
        return max(self.limit_tokens * ROLLING_PERCENT // 100 - HEAD_TOKENS, self.narrative_tokens)

    def free_narrative_tokens(self, facts: Sequence[KeptFact], segments: Sequence[Segment]) -> int:
        """Return what `segments` may take beside `facts`: also what those leave that they do not tell."""
        left = self.fact_tokens(facts)
        beside = _beside("\n".join(segment.text for segment in segments), mattering(facts))
        return self.narrative_tokens + max(left - self.count(self._facts(beside, left)), 0)

    def fact_tokens(self, facts: Sequence[KeptFact]) -> int:
        """Return what facts other than instructions have in any case: 0 of the kind `llm`, whose narrative has all."""
        rules = self.count(self._instructions(facts))
        return max(self.limit_tokens - self.narrative_tokens - HEAD_TOKENS - rules - 2 * JOIN_TOKENS, 0)

    def render(
        self, segments: Sequence[Segment], facts: Sequence[KeptFact], replaced_tokens: int | None = None
    ) -> RenderedSummary:
        """Return the text that stands for the segments, oldest to newest, then instructions and kept facts.

        Never above the limit. Facts fill what is left of it, or of their aim beside the `replaced_tokens` of what the
        text replaces. Where instructions would make it no smaller than those, the narrative is cut, they never.
        """
        if self.kind is SummaryKind.LLM:
            return self._joined([narrative_text(segments, max_tokens=self.limit_tokens, count=self.count)])
        replaced = 2 * self.limit_tokens if replaced_tokens is None else replaced_tokens
        rules = self._instructions(facts)
        beside = max(replaced - 1 - self.count(rules) - JOIN_TOKENS, LEAST_NODE_TOKENS) if rules else self.limit_tokens
        most = min(self.free_narrative_tokens(facts, segments) + HEAD_TOKENS, beside)
        narrative = narrative_text(marked(segments, facts), max_tokens=most, count=self.count)
        aim = min(self.limit_tokens, int(SHRUNK_TO * replaced))
        left = aim - self.count(PARAGRAPH.join((narrative, rules))) - JOIN_TOKENS
        return self._joined([narrative, rules, self._facts(_beside(narrative, facts), left)])

    def _instructions(self, facts: Sequence[KeptFact]) -> str:
        most = self.limit_tokens * INSTRUCTION_PERCENT // 100
        return render_instructions(facts, max_tokens=most, count=self.count)

    def _facts(self, facts: Sequence[KeptFact], max_tokens: int) -> str:
        return render_facts(facts, max_tokens=max_tokens, count=self.count)

    def _joined(self, parts: Sequence[str]) -> RenderedSummary:
        text = PARAGRAPH.join(part for part in parts if part)
        if self.count(text) > self.limit_tokens:
            text = truncate_middle(text, self.limit_tokens, self.count, " of the summary")
        return RenderedSummary(text, self.count(text) if text else 0)


def _beside(narrative: str, facts: Sequence[KeptFact]) -> list[KeptFact]:
    """Return the facts that the narrative does not tell word for word.

    Replaced ones are among them, and those that change something: the narrative may tell the old value again below.
    """
    told = one_line(narrative)
    return [fact for fact in facts if fact.replaced_by or fact.text not in told or changes(fact.text)]


def marked(segments: Sequence[Segment], facts: Sequence[KeptFact]) -> tuple[Segment, ...]:
    """Return the segments with `[#12]` marked as replaced where every fact kept of message 12 was replaced later."""
    ended: dict[str, int] = {}
    for fact in facts:
        ended[f"[#{fact.position}]"] = min(fact.replaced_by, ended.get(f"[#{fact.position}]", fact.replaced_by))
    marks = {place: f"{place[:-1]}, replaced by #{by}]" for place, by in ended.items() if by}

    def mark(place: re.Match[str]) -> str:
        return marks.get(place[0], place[0])

    return tuple(replace(segment, text=_PLACE.sub(mark, segment.text)) for segment in segments)


def mattering(facts: Sequence[KeptFact]) -> tuple[KeptFact, ...]:
    """Return the facts for which the narrative makes room: current, and not passed over more often than chosen."""
    return tuple(fact for fact in facts if not fact.replaced_by and fact.score >= EVEN)
