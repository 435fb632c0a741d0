"""Truncation of one long text to its head and tail, with a mark between them that says how much is missing."""

from collections.abc import Callable

MAX_CHARACTERS_PER_TOKEN = 32
"""A text with more characters per allowed token is not counted as a whole first: that would take seconds."""

FIRST_GUESS_CHARACTERS_PER_TOKEN = 3
GOOD_ENOUGH = 0.9
MAX_TRIES = 8
HEAD_SHARE = 0.6


def truncate_middle(text: str, max_tokens: int, count: Callable[[str], int], label: str = "") -> str:
    """Return `text`, or its head and tail around a mark, in at most `max_tokens`.

    `label` names the text in the mark, for example ` of #12`. The result is never longer than `text`. `count` is called
    at most about ten times, on pieces in proportion to `max_tokens`. Returns '' if not even the mark fits.
    """
    if max_tokens <= 0:
        return ""
    if len(text) <= max_tokens * MAX_CHARACTERS_PER_TOKEN and count(text) <= max_tokens:
        return text
    return _search(text, max_tokens, count, label) or _smallest(text, max_tokens, count, label)


def cut_middle(text: str, keep: int, label: str = "") -> str:
    """Return the first and last characters of `text`, `keep` in all, around the mark; a shorter text unchanged."""
    if keep >= len(text):
        return text
    head = int(keep * HEAD_SHARE)
    tail = keep - head
    return f"{text[:head]}{mark(len(text) - keep, label)}{text[len(text) - tail :] if tail else ''}"


def cut_to_bytes(text: str, max_bytes: int, label: str = "") -> str:
    """Return `text`, or its head and tail in `max_bytes` of UTF-8; the mark comes on top of that."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    head_bytes = int(max_bytes * HEAD_SHARE)
    head = data[:head_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - (max_bytes - head_bytes) :].decode("utf-8", "ignore")
    return f"{head}{mark(len(text) - len(head) - len(tail), label)}{tail}"


def mark(characters: int, label: str = "") -> str:
    """Return the mark that stands for omitted characters and says how many they are."""
    return f"\n[… {characters:,} characters{label} left out …]\n"


def _search(text: str, max_tokens: int, count: Callable[[str], int], label: str) -> str:
    """Search for the largest cut that fits, first by proportion, then by bisection."""
    best, fits, too_much = "", 0, len(text)
    keep = min(len(text) - 1, max_tokens * FIRST_GUESS_CHARACTERS_PER_TOKEN)
    for _ in range(MAX_TRIES):
        candidate = cut_middle(text, keep, label)
        tokens = count(candidate)
        if tokens <= max_tokens:
            best, fits = candidate, keep
        else:
            too_much = keep
        if GOOD_ENOUGH * max_tokens <= tokens <= max_tokens or too_much - fits <= 1:
            break
        guess = int(keep * max_tokens / max(tokens, 1) * 0.98)
        keep = guess if fits < guess < too_much else (fits + too_much) // 2
    return best


def _smallest(text: str, max_tokens: int, count: Callable[[str], int], label: str) -> str:
    for candidate in (mark(len(text), label).strip(), "[…]", "…"):
        if count(candidate) <= max_tokens:
            return candidate
    return ""
