"""Lists of words and phrases as regular expressions, for tables that people read and extend."""

import re

_SEPARATOR = re.compile(r",\s+")


def entries_of(words: str) -> list[str]:
    """Return the entries of a list, which are separated by commas and white space."""
    return _SEPARATOR.split(words.strip())


def words_in(words: str) -> frozenset[str]:
    """Return the words of `words`, which are separated by white space."""
    return frozenset(words.split())


def one_of(words: str) -> re.Pattern[str]:
    """Return the regular expression of a lower-case list.

    In an entry `…` stands for up to 40 characters, `*` for a part of a word.
    """
    return re.compile("|".join(map(_expression, entries_of(words))))


def _expression(entry: str) -> str:
    """Return the regular expression of an entry, with word boundaries except in scripts without spaces (U+2E80 on)."""
    start, end = ("", "") if entry[-1] >= "\u2e80" else (r"(?<!\w)", r"(?![\w-])" if entry[-1] not in ':."{,' else "")
    return start + re.escape(entry).replace("…", ".{0,40}").replace(r"\*", r"\w*") + end
