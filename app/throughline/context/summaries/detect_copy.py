"""Telling a summary from a copy: of the record that was to be summarised, or of the summary that was to be extended."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

GRAM_WORDS = 8
"""So many words in a row are hardly ever the same by chance."""

LONG_RUN_CHARACTERS = 400
"""A quotation is shorter: the extracts of the offline model are sentences of at most 300 characters, one a line."""

COPIED_PERCENT = 60
"""From this share on a text is a copy, with some words around it."""

LARGE_SHARE_PERCENT = 50
"""A list of quotations may be all verbatim, if it holds less than this of the record."""

SUBSTANCE_CHARACTERS = 100
"""A record whose new words are fewer, all together, may leave a summary as it is: thanks, a greeting, filler."""

_TAG = re.compile(r"^\[#\d+ (?:user|assistant|tool|calls)\b[^\[\]\n]*+\]", re.MULTILINE)
_SPEAKER = re.compile(
    r"^[*_]{0,2}(?:user|human|assistant|ai|tool)[*_]{0,2}:[*_]{0,2}(?=\s)", re.MULTILINE | re.IGNORECASE
)
_QUOTED_LINE = re.compile(r"\A(?:[-*•>]|#{1,6}|\d+[.)])\s")
_SECTION = re.compile(r"^#{1,4} \w", re.MULTILINE)
_WORD = re.compile(r"\w+")


def is_copy(text: str, record: str) -> bool:
    """Whether `text` is the transcript `record`, or a part of it, and no summary of it.

    What stands in long runs word for word as in the record is copied. Where that is most of the text, it is a copy if
    it has the record's own tags, is neither a list nor in sections with positions, or holds half of the record. Quoting
    single sentences is no copying, nor is keeping the present draft of a text below what it is.
    Linear in both.
    """
    if len(text) < LONG_RUN_CHARACTERS or not _TAG.search(record):
        return False
    words, read = _words(text), _words(record)
    copied = sum(run for run in _runs(words, read) if run >= LONG_RUN_CHARACTERS)
    if copied * 100 < COPIED_PERCENT * _length(words):
        return False
    return bool(_TAG.search(text)) or not _is_structured(text) or copied * 100 >= LARGE_SHARE_PERCENT * _length(read)


def is_unchanged(text: str, existing: str, record: str) -> bool:
    """Whether `text` is the `existing` summary again although `record` says something that is not in it."""
    if not existing.strip() or text.split() != existing.split():
        return False
    new = {*_WORD.findall(_TAG.sub("", record).casefold())} - {*_WORD.findall(existing.casefold())}
    return sum(map(len, new)) >= SUBSTANCE_CHARACTERS


def _words(text: str) -> list[str]:
    """Return the words without the tags and names that say who speaks."""
    return _SPEAKER.sub("", _TAG.sub("", text)).split()


def _length(words: Sequence[str]) -> int:
    return sum(map(len, words)) + len(words)


def _runs(words: Sequence[str], read: Sequence[str]) -> Iterator[int]:
    """Yield the characters of each run of `words` that is copied: all eight in a row stand in `read`, too."""
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
    """Whether most lines are quotations, or what a summariser is asked for: sections that cite positions."""
    return _is_list(text) or (_SECTION.search(text) is not None and "[#" in text)


def _is_list(text: str) -> bool:
    lines = [line.lstrip() for line in text.splitlines() if line.strip()]
    return 2 * sum(1 for line in lines if _QUOTED_LINE.match(line)) > len(lines)
