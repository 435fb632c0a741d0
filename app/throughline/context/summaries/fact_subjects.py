"""Subjects of facts: comparison of their names by words, so that later statements about one subject are recognised."""

import re
import unicodedata
from functools import lru_cache

from throughline.context.summaries.readable_text import words_in

LEAST_LETTERS = 3
"""Shorter words of letters alone are mostly articles and prepositions, in any language written with spaces."""

FILLERS = words_in("""
    the and for are was our your has his her its about overall general current regarding
    der die das den dem des ein und von für mit ist war bei zum zur allgemein thema über
    los las del una uno por con para que son sobre acerca actual est les des une sur par pour nos
""")
"""Words that do not distinguish one subject from another."""

SAME_SHARE = 0.6
"""Share of common words from which two subjects are the same: an extra article does not make a new subject."""

MOST_KNOWN, SHORT_CHARACTERS = 4096, 300
"""Number and length of texts whose words are cached: facts are compared again and again, a message is read once."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def words_of(text: str) -> frozenset[str]:
    """Return the meaningful words of `text`, without case and plural; pairs of letters for scripts without spaces.

    If the text has only short words, all are returned. The time is linear.
    """
    return _words_known(text) if len(text) <= SHORT_CHARACTERS else _words(text)


def _words(text: str) -> frozenset[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = {part for word in _WORD.findall(plain) for part in _parts(word)}
    long = {
        word for word in words - FILLERS if len(word) >= LEAST_LETTERS or not word.isalpha() or _UNSPACED.search(word)
    }
    return frozenset(_singular(word) for word in long or words)


_words_known = lru_cache(MOST_KNOWN)(_words)


def is_same_subject(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two sets of words name one subject.

    For scripts without spaces, the shorter set may also be a part of the longer.
    """
    if not one or not other:
        return False
    is_part = any(map(_UNSPACED.search, one)) and (one <= other or other <= one)
    return is_part or len(one & other) >= SAME_SHARE * len(one | other)


def _parts(word: str) -> list[str]:
    if not _UNSPACED.search(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)] or [word]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > LEAST_LETTERS + 1 and word.endswith("s") else word


def subject_key(subject: str) -> frozenset[str]:
    """Return what two names of one subject have in common: their words, or for a key or a code the whole name."""
    is_code = " " not in subject and not subject.replace("-", "").isalpha()
    return frozenset((subject.casefold(),)) if is_code and subject else words_of(subject)
