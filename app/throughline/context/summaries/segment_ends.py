"""Where a segment ends, which segments are merged, and how a summary's room is divided among them and the facts.

A segment ends within the summary model's window, preferably at a long pause or a change of subject.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import accumulate
from statistics import mean, pstdev

from throughline.context.measure import Count
from throughline.context.policy import SummaryKind
from throughline.context.summaries.fact_subjects import words_of
from throughline.context.summaries.keep_lines import changes
from throughline.context.summaries.kept_facts_text import EVEN, render_facts, render_instructions
from throughline.context.summaries.readable_text import one_line
from throughline.context.summaries.render_summary import HEAD_TOKENS, PARAGRAPH, narrative_text
from throughline.context.summaries.summary_prompt import LINE_TOKENS, TOOL_CHARACTERS, render_transcript
from throughline.context.view.groups import split_at_cuts
from throughline.context.view.shrink_message import truncate_middle
from throughline.domain.message import Message, Role, text_of
from throughline.domain.summary import KeptFact, Segment

# Growth of a tiered summary: which neighbouring segments are merged, and how large each may be.
#
# A segment made from messages has level 0. If segments no longer fit together, four neighbours of one level are merged
# into one of the next. Of n segments about 3 log4(n) remain, and a fact is rewritten about log4(n) times instead of n
# times. The text before the merged segments keeps its bytes. While there is room, nothing is merged. A rolling summary
# is one segment of messages 1 to p and needs no merging.

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


NARRATIVE_PERCENT, ROLLING_PERCENT, INSTRUCTION_PERCENT = 30, 60, 25
"""Shares of a summary's limit: least of the narrative, most of a rolling narrative, and most of the instructions."""

SHRUNK_TO = 0.75
"""Largest size of a summary with its facts, as a share of what it replaces: a compaction must free a real part."""

JOIN_TOKENS = 2
"""Tokens of the blank line between two parts."""

_PLACE = re.compile(r"\[#\d{1,9}\]")


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

        It is the narrative's own share, plus the room that the facts leave free. Only current facts count that the
        texts do not state already.
        """
        left = self.fact_tokens(facts)
        beside = _beside("\n".join(segment.text for segment in segments), mattering(facts))
        return self.narrative_tokens + max(left - self.count(self._facts(beside, left)), 0)

    def fact_tokens(self, facts: Sequence[KeptFact]) -> int:
        """Return the tokens reserved for facts other than instructions; 0 with the kind `llm` (narrative only)."""
        rules = self.count(self._instructions(facts))
        return max(self.limit_tokens - self.narrative_tokens - HEAD_TOKENS - rules - 2 * JOIN_TOKENS, 0)

    def render(
        self, segments: Sequence[Segment], facts: Sequence[KeptFact], replaced_tokens: int | None = None
    ) -> tuple[str, int]:
        """Return the summary and its tokens: the segments from oldest to newest, then instructions and kept facts.

        It never exceeds the limit. Facts fill the room that the limit leaves, or the aim: SHRUNK_TO of
        `replaced_tokens`, the size of what the text replaces. If instructions would make it no smaller than that, the
        narrative is cut, never the instructions.
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

    def _joined(self, parts: Sequence[str]) -> tuple[str, int]:
        text = PARAGRAPH.join(part for part in parts if part)
        if self.count(text) > self.limit_tokens:
            text = truncate_middle(text, self.limit_tokens, self.count, " of the summary")
        return text, self.count(text) if text else 0


def _beside(narrative: str, facts: Sequence[KeptFact]) -> list[KeptFact]:
    """Return the facts that the narrative does not state word for word.

    Replaced facts and facts that state a change are always returned: the narrative may repeat the old value later on.
    """
    narrative_line = one_line(narrative)
    return [fact for fact in facts if fact.replaced_by or fact.text not in narrative_line or changes(fact.text)]


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

    They are not replaced, and a model has chosen them at least as often as it passed them over.
    """
    return tuple(fact for fact in facts if not fact.replaced_by and fact.score >= EVEN)
