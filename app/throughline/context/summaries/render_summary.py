"""Text of summary segments, in a prompt and in a request to merge them; too long ones are cut with a mark."""

import bisect
import re
from collections.abc import Sequence

from throughline.context.measure import Count
from throughline.context.summaries.kept_facts_text import FACTS_HEADING, INSTRUCTIONS_HEADING
from throughline.context.view.placeholder_texts import INVISIBLE
from throughline.context.view.shrink_message import fair_level, truncate_middle
from throughline.domain.summary import Segment

CUT_MARK = "\n[The summary was longer and is cut here.]"
PARAGRAPH = "\n\n"

HEAD_TOKENS = 12
"""Tokens of a head line and the blank line before it: `[#123456-#123999]` has 10 tokens in cl100k."""

LEAST_SHOWN_TOKENS = 48
"""Least readable size of a cut segment. Instead of cutting deeper, the oldest segments are left out."""

CUT_TRIES = 3
"""Number of tries with ever deeper cuts, for counters that count more for a whole text than for its parts."""

_CUT_MARKS = re.compile(r"\n?\[The (?:\w++ ){1,3}was longer and is cut here\.?\]", re.IGNORECASE)
"""The mark, as the service and a model that rewords it write it."""

_BOUNDARY = re.compile(r"\n\n|\n|(?<=[.!?。!?])\s")
_WHOLE = re.compile(r"[.!?](?=\s|\Z)|[。！？]|\n")
_HEADING = re.compile(r"\A#{1,6}\s")
_HEAD_LINE = re.compile(rf"^(?=[{INVISIBLE}]*+\[#\d+-#\d+\][^\S\n]*+$)", re.MULTILINE)
_HEADINGS = "|".join(
    re.escape(heading.partition(" (")[0].rstrip(":")) for heading in (INSTRUCTIONS_HEADING, FACTS_HEADING)
)
_FACTS_LINE = re.compile(rf"^(?=[^\w\n]*+(?:{_HEADINGS}))", re.MULTILINE | re.IGNORECASE)


def head_line(segment: Segment) -> str:
    """Return the line above a segment's text, for example `[#1-#40]`."""
    return f"[#{segment.from_position}-#{segment.through_position}]"


def node_text(segment: Segment) -> str:
    """Return the segment's text under its head line.

    A line of the text that looks like a head line is indented; one that looks like a heading of kept facts is quoted.
    """
    return f"{head_line(segment)}\n{_body(segment)}"


def narrative_text(segments: Sequence[Segment], *, max_tokens: int, count: Count) -> str:
    """Return the texts of the segments, oldest to newest, in at most `max_tokens`; empty ones are left out.

    If they take more, the biggest are cut at a boundary, all to the same size. If that leaves too little to read, the
    oldest are left out first. The same segments and limit give the same bytes.
    """
    written = [segment for segment in segments if segment.text.strip()]
    whole = PARAGRAPH.join(node_text(segment) for segment in written)
    if not written or count(whole) <= max_tokens:
        return whole
    cut = _cut_to_fit(written, max_tokens, count)
    return truncate_middle(whole, max_tokens, count, " of the summary") if cut is None else cut


def _cut_to_fit(written: Sequence[Segment], max_tokens: int, count: Count) -> str | None:
    """Return the segments with the biggest ones cut; None if a few tries were not enough."""
    all_sizes = [count(node_text(segment)) + 1 for segment in written]
    left_out = _left_out(all_sizes, max_tokens)
    opening, shown, sizes = _opening(written[:left_out]), written[left_out:], all_sizes[left_out:]
    room = max_tokens - (count(opening) if opening else 0)
    for _ in range(CUT_TRIES):
        cut = opening + _cut_biggest(shown, sizes, room, count)
        tokens = count(cut)
        if tokens <= max_tokens:
            return cut
        room -= tokens - max_tokens
    return None


def _left_out(sizes: Sequence[int], max_tokens: int) -> int:
    """Return how many of the oldest segments must be left out so that each of the others stays readable."""
    for start in range(len(sizes) - 1):
        if fair_level(sizes[start:], max_tokens - (LEAST_SHOWN_TOKENS if start else 0)) >= LEAST_SHOWN_TOKENS:
            return start
    return max(len(sizes) - 1, 0)


def _opening(left_out: Sequence[Segment]) -> str:
    """Return the text that replaces the segments which are left out."""
    if not left_out:
        return ""
    first, last = left_out[0].from_position, left_out[-1].through_position
    return f"[#{first}-#{last}]\n[The oldest parts of the summary are left out here.]{PARAGRAPH}"


def with_one_mark(text: str) -> str:
    """Return the text without all marks of a cut but the first one that the service wrote."""
    head, mark, tail = text.partition(CUT_MARK)
    return f"{_CUT_MARKS.sub('', head)}{mark}{_CUT_MARKS.sub('', tail)}"


def cut_at_boundary(text: str, max_tokens: int, count: Count) -> str:
    """Return the text up to the last paragraph, line or sentence that fits with the mark; a short text unchanged.

    If not even the first of them fits, the middle of the text is cut. Marks of earlier cuts are left out.
    """
    if count(text) <= max_tokens:
        return text
    text = _CUT_MARKS.sub("", text)
    ends = [match.start() for match in _BOUNDARY.finditer(text)]
    fitting = _last_fitting(text, ends, max_tokens, count)
    return f"{text[:fitting].rstrip()}{CUT_MARK}" if fitting else truncate_middle(text, max_tokens, count)


def cut_middle_at_boundaries(text: str, max_tokens: int, count: Count) -> str:
    """Return the beginning and the end of the text around the mark, cut at boundaries; a short text unchanged.

    The end is kept because a model that extends a summary often repeats it and writes what is new behind it. Marks of
    earlier cuts are left out.
    """
    if count(text) <= max_tokens:
        return text
    text = _CUT_MARKS.sub("", text)
    head = cut_at_boundary(text, max_tokens // 2, count)
    if not head.endswith(CUT_MARK):
        return truncate_middle(text, max_tokens, count)
    starts = [match.end() for match in _BOUNDARY.finditer(text)]
    tail = _first_fitting(text, starts, max_tokens - count(head) - 1, count)
    return f"{head}\n{tail}" if tail else cut_at_boundary(text, max_tokens, count)


def cut_back(text: str) -> str:
    """Return an incomplete text up to its last whole line or sentence, with a mark; '' if it has none."""
    ends = [match.end() for match in _WHOLE.finditer(text)]
    lines = text[: ends[-1]].rstrip().split("\n") if ends else []
    while lines and (not lines[-1].strip() or _HEADING.match(lines[-1].lstrip())):
        lines.pop()
    return "\n".join(lines) + CUT_MARK if lines else ""


def _body(segment: Segment) -> str:
    return _FACTS_LINE.sub("> ", _HEAD_LINE.sub(" ", segment.text.strip()))


def _cut_biggest(segments: Sequence[Segment], sizes: Sequence[int], room: int, count: Count) -> str:
    level = fair_level(sizes, room)
    nodes = [
        node_text(segment) if size <= level else _cut_node(segment, level, count)
        for segment, size in zip(segments, sizes, strict=True)
    ]
    return PARAGRAPH.join(nodes)


def _cut_node(segment: Segment, max_tokens: int, count: Count) -> str:
    head = f"{head_line(segment)}\n"
    return f"{head}{cut_at_boundary(_body(segment), max_tokens - count(head) - 1, count)}"


def _last_fitting(text: str, ends: Sequence[int], max_tokens: int, count: Count) -> int:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if count(f"{text[: ends[middle]].rstrip()}{CUT_MARK}") <= max_tokens:
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else 0


def _first_fitting(text: str, starts: Sequence[int], max_tokens: int, count: Count) -> str:
    """Return the longest end of the text that begins at one of `starts` and fits; '' if none does."""
    fits = bisect.bisect_left(starts, 1, key=lambda start: int(count(text[start:]) <= max_tokens))
    return text[starts[fits] :].strip() if fits < len(starts) else ""
