"""Detection of copies: of the record that was to be summarised, or of the summary that was to be extended."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from throughline.context.summaries.render_summary import CUT_MARK

GRAM_WORDS = 8
"""Number of consecutive words that are hardly ever the same by chance."""

LONG_RUN_CHARACTERS = 400
"""Length from which copied text is more than a quotation.

The offline model's extracts are sentences of at most 300 characters, one per line.
"""

COPIED_PERCENT = 60
"""Share of copied characters from which a text counts as a copy with a few words around it."""

LARGE_SHARE_PERCENT = 50
"""A list of quotations may be entirely verbatim if it contains less than this share of the record."""

SUBSTANCE_CHARACTERS = 100
"""Length of all new words together below which a record may leave a summary unchanged: thanks, greetings, filler."""

_TAG = re.compile(r"^\[#\d+ (?:user|assistant|tool|calls)\b[^\[\]\n]*+\]", re.MULTILINE)
_SPEAKER = re.compile(
    r"^[*_]{0,2}(?:user|human|assistant|ai|tool)[*_]{0,2}:[*_]{0,2}(?=\s)", re.MULTILINE | re.IGNORECASE
)
_QUOTED_LINE = re.compile(r"\A(?:[-*•>]|#{1,6}|\d+[.)])\s")
_SECTION = re.compile(r"^#{1,4} \w", re.MULTILINE)
_WORD = re.compile(r"\w+")


def is_copy(text: str, record: str) -> bool:
    """Return whether `text` is the transcript `record`, or a part of it, instead of a summary.

    Copied are long sequences that stand word for word in the record. A mostly copied text is a copy if it has the
    record's own tags, if it is neither a list nor sections with positions, or if it holds half of the record. Quoted
    single sentences do not count. The time is linear in both texts.
    """
    if len(text) < LONG_RUN_CHARACTERS or not _TAG.search(record):
        return False
    words, read = _words(text), _words(record)
    copied = sum(run for run in _runs(words, read) if run >= LONG_RUN_CHARACTERS)
    if copied * 100 < COPIED_PERCENT * _length(words):
        return False
    return bool(_TAG.search(text)) or not _is_structured(text) or copied * 100 >= LARGE_SHARE_PERCENT * _length(read)


def is_unchanged(text: str, existing: str, record: str) -> bool:
    """Return whether `text` is the `existing` summary again, or its beginning, although `record` says something new.

    A model that repeats the summary before it writes what is new may reach the limit of its answer in between.
    """
    words = text.removesuffix(CUT_MARK).split()
    if not words or words != existing.split()[: len(words)]:
        return False
    new = {*_WORD.findall(_TAG.sub("", record).casefold())} - {*_WORD.findall(existing.casefold())}
    return sum(map(len, new)) >= SUBSTANCE_CHARACTERS


def _words(text: str) -> list[str]:
    """Return the words without the tags and names of the speakers."""
    return _SPEAKER.sub("", _TAG.sub("", text)).split()


def _length(words: Sequence[str]) -> int:
    return sum(map(len, words)) + len(words)


def _runs(words: Sequence[str], read: Sequence[str]) -> Iterator[int]:
    """Yield the characters of each copied run of `words`: every eight consecutive words also stand in `read`."""
    known = {hash(gram) for gram in _grams(read)}
    run = covered = 0
    for start, gram in enumerate(_grams(words)):
        if hash(gram) in known:
            run += _length(words[max(start, covered) : start + GRAM_WORDS])
            covered = start + GRAM_WORDS
        elif run:
            yield run
            run = 0
    yield run


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(islice(words, offset, None) for offset in range(GRAM_WORDS)), strict=False)


def _is_structured(text: str) -> bool:
    """Return whether most lines are quotations, or the text has the requested sections with cited positions."""
    return _is_list(text) or (_SECTION.search(text) is not None and "[#" in text)


def _is_list(text: str) -> bool:
    lines = [line.lstrip() for line in text.splitlines() if line.strip()]
    return 2 * sum(1 for line in lines if _QUOTED_LINE.match(line)) > len(lines)
