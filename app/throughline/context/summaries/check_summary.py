"""Checks of a summary model's answer before it is stored."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.context.measure import Count
from throughline.context.summaries.citations import without_invented
from throughline.context.summaries.detect_copy import is_copy, is_unchanged
from throughline.context.summaries.reject_summary import why_no_summary
from throughline.context.summaries.render_summary import cut_at_boundary, cut_middle_at_boundaries
from throughline.domain.text import is_blank
from throughline.domain.think_blocks import without_thinking

SMALL_SUMMARY_TOKENS = 200
"""A summary with fewer tokens is always accepted as small enough."""

MOST_CHARACTERS_PER_TOKEN = 64
"""Characters per allowed token beyond which a text is not read: it will be cut anyway, and reading it takes seconds."""


class Verdict(StrEnum):
    """What to do with a summary: store it, continue without it (nothing is wrong), or treat it as a failure."""

    ACCEPT = "accept"
    SKIP = "skip"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Sources:
    """The texts a summary was made from: the `record` to summarise and the `existing` summary to extend.

    Both are as the model read them. `reach` is the first and the last position the summary covers, None if unknown.
    `may_be_unchanged`: the model may return the existing summary unchanged.
    """

    record: str = ""
    existing: str = ""
    reach: tuple[int, int] | None = None
    may_be_unchanged: bool = False


NOTHING_KNOWN = Sources()


@dataclass(frozen=True, slots=True)
class CheckedSummary:
    """The verdict on a summary, the reason ('' if accepted), the text to store ('' unless accepted), and its tokens."""

    verdict: Verdict
    reason: str
    text: str
    tokens: int


def check_summary(
    text: str, *, replaced_tokens: int, max_tokens: int, count: Count, sources: Sources = NOTHING_KNOWN
) -> CheckedSummary:
    """Judge a summary that would replace `replaced_tokens` of text.

    - Rejected are texts that are no summary (a refusal, an error text), a copy of the record, and the
      existing summary again or its beginning.
    - Skipped is a summary that is no smaller than what it would replace, unless it has fewer than SMALL_SUMMARY_TOKENS.
    - Removed are the model's preceding reasoning, and citations of positions that it never read.
    - The size is judged before cutting. A text above `max_tokens` is then cut at a boundary and marked: at its end, or
      in its middle if it extends an existing summary.

    The time is linear in the sources and in `max_tokens`.
    """
    most = max(max_tokens, SMALL_SUMMARY_TOKENS) * MOST_CHARACTERS_PER_TOKEN
    text = without_thinking(text)
    head = text[:most]
    said = without_invented(head, sources.reach, sources.record, sources.existing) if sources.reach else head
    reason = _why_not(said, sources)
    if reason:
        return CheckedSummary(Verdict.REJECT, reason, "", 0)
    whole = count(said) * len(text) // len(head)
    if whole >= replaced_tokens and whole >= SMALL_SUMMARY_TOKENS:
        reason = f"The summary takes {whole} tokens and would replace only {replaced_tokens}."
        return CheckedSummary(Verdict.SKIP, reason, "", whole)
    cutting = cut_middle_at_boundaries if sources.existing else cut_at_boundary
    cut = cutting(said, max_tokens, count).strip()
    if is_blank(cut):
        return CheckedSummary(Verdict.REJECT, f"Nothing of the summary fits {max_tokens} tokens.", "", 0)
    return CheckedSummary(Verdict.ACCEPT, "", cut, count(cut))


def _why_not(text: str, sources: Sources) -> str:
    reason = why_no_summary(text, sources.record)
    if not reason and is_copy(text, sources.record):
        return "The summary model returned the record and no summary."
    if not reason and not sources.may_be_unchanged and is_unchanged(text, sources.existing, sources.record):
        return "The summary model returned the existing summary without what is new."
    return reason
