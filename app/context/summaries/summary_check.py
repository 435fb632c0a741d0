"""Judging what a summary model wrote before it is stored."""

from dataclasses import dataclass
from enum import StrEnum

from app.context.measure import Count
from app.context.summaries.no_summary import why_no_summary
from app.context.summaries.summary_text import cut_at_boundary
from app.domain.text import is_blank

SMALL_SUMMARY_TOKENS = 200
"""A summary below this is always small enough."""


class Verdict(StrEnum):
    """What to do with a summary: store it, go on without (nothing is wrong), or treat it as a failure."""

    ACCEPT = "accept"
    SKIP = "skip"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class CheckedSummary:
    """The verdict, its reason ('' for an accepted one), and the text to store."""

    verdict: Verdict
    reason: str
    text: str
    tokens: int


def check_summary(
    text: str, *, replaced_tokens: int, max_tokens: int, count: Count, record: str = ""
) -> CheckedSummary:
    """Judge a summary of `replaced_tokens` worth of text; one above `max_tokens` is cut at a boundary and marked.

    With `record`, the transcript the model read, an error text that stands in it is recognised as such.
    """
    text = text.strip()
    reason = why_no_summary(text, record)
    if reason:
        return CheckedSummary(Verdict.REJECT, reason, "", 0)
    cut = cut_at_boundary(text, max_tokens, count)
    tokens = count(cut)
    if tokens >= replaced_tokens and tokens >= SMALL_SUMMARY_TOKENS:
        reason = f"The summary takes {tokens} tokens and would replace only {replaced_tokens}."
        return CheckedSummary(Verdict.SKIP, reason, "", tokens)
    if is_blank(cut):
        return CheckedSummary(Verdict.REJECT, f"Nothing of the summary fits {max_tokens} tokens.", "", 0)
    return CheckedSummary(Verdict.ACCEPT, "", cut, tokens)
