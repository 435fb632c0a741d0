"""Judging what a summary model wrote before it is stored, and the extract that serves one prompt when it failed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.context.measure import Count
from app.context.truncate import truncate_middle
from app.domain.message import Message, Role, text_of
from app.domain.text import is_blank

SMALL_SUMMARY_TOKENS = 200
"""A summary below this is always small enough."""

SHORT_TEXT_CHARACTERS = 400
"""Only a short text can be an error message or a refusal; a long one that begins like one is a summary of it."""

CUT_MARK = "\n[The summary was longer and is cut here.]"
EXTRACT_HEADING = "[An extract, made without a model: the beginning of each message.]"
EXTRACT_CHARACTERS = 160

_NO_SUMMARY = re.compile(
    r"""^\W*(?:
        (?:i['’]?m|i\ am)\ (?:really\ |very\ |so\ )?(?:sorry|unable)
      | (?:sorry|apologies|unfortunately),?\ (?:but\ )?i\b
      | i\ (?:can(?:['’]?t|not|\ not)|won['’]?t|will\ not|could(?:n['’]?t|\ not))\b
      | as\ an\ ai\b
      | (?:internal\ )?(?:server\ )?error\b
      | (?:http\s*)?[45]\d\d\b
      | (?:rate\ limit|too\ many\ requests|service\ unavailable|bad\ gateway|request\ timed\ out|overloaded)
      | <!doctype | <html
      | "?error"?\s*:
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_BOUNDARY = re.compile(r"\n\n|\n|(?<=[.!?。!?])\s")


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


def check_summary(text: str, *, replaced_tokens: int, max_tokens: int, count: Count) -> CheckedSummary:
    """Judge a summary of `replaced_tokens` worth of text; one above `max_tokens` is cut at a boundary and marked."""
    text = text.strip()
    if is_blank(text):
        return CheckedSummary(Verdict.REJECT, "The summary model returned an empty text.", "", 0)
    if len(text) <= SHORT_TEXT_CHARACTERS and _NO_SUMMARY.match(text):
        return CheckedSummary(Verdict.REJECT, "The summary model returned a refusal or an error text.", "", 0)
    cut = _cut_at_boundary(text, max_tokens, count)
    tokens = count(cut)
    if tokens >= replaced_tokens and tokens >= SMALL_SUMMARY_TOKENS:
        reason = f"The summary takes {tokens} tokens and would replace only {replaced_tokens}."
        return CheckedSummary(Verdict.SKIP, reason, "", tokens)
    return CheckedSummary(Verdict.ACCEPT, "", cut, tokens)


def extract_summary(existing_summary: str, messages: Sequence[Message], *, max_tokens: int, count: Count) -> str:
    """Return a text made of the existing summary and the beginning of each user and assistant message.

    For the prompt at hand only, when the summary model failed; it is never stored, and the cursor stays.
    """
    half = max_tokens // 2 if existing_summary.strip() else 0
    before = truncate_middle(existing_summary.strip(), half, count, " of the summary")
    lines = [_extract_line(message) for message in messages if message.role is not Role.TOOL]
    told = "\n".join((EXTRACT_HEADING, *(line for line in lines if line)))
    left = max_tokens - (count(f"{before}\n\n") if before else 0)
    after = truncate_middle(told, left, count)
    joined = f"{before}\n\n{after}" if before else after
    return joined if count(joined) <= max_tokens else truncate_middle(joined, max_tokens, count)


def _extract_line(message: Message) -> str:
    words = " ".join(text_of(message.content)[: EXTRACT_CHARACTERS * 4].split())
    if not words:
        return ""
    short = words if len(words) <= EXTRACT_CHARACTERS else f"{words[:EXTRACT_CHARACTERS]}…"
    return f"[#{message.position} {message.role.value}] {short}"


def _cut_at_boundary(text: str, max_tokens: int, count: Count) -> str:
    """Return the text up to the last paragraph, line or sentence that fits together with the mark."""
    if count(text) <= max_tokens:
        return text
    ends = [match.start() for match in _BOUNDARY.finditer(text)]
    fitting = _last_fitting(text, ends, max_tokens, count)
    return f"{text[:fitting].rstrip()}{CUT_MARK}" if fitting else truncate_middle(text, max_tokens, count)


def _last_fitting(text: str, ends: Sequence[int], max_tokens: int, count: Count) -> int:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if count(f"{text[: ends[middle]].rstrip()}{CUT_MARK}") <= max_tokens:
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else 0
