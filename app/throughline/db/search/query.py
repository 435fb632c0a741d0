"""Parsing of search queries: words, "phrases" and filters.

Filters are `author:anna`, `role:user`, `tool:grep`, `after:2026-03-01`, `before:2026-04-01` and `on:2026-03-14`. A text
in double quotes must occur exactly as written, even if it looks like a filter. All other text, such as `error:` or
`http://…`, is searched as words. Words also match author names and days, and such messages rank higher. A filter with
an invalid value raises InvalidInput, since it would otherwise find too much or nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from throughline.context.quoted_history import ASKING_WORDS, QUESTION_WORDS
from throughline.db.search.analyzer import Analyzer
from throughline.db.search.entries import AUTHOR, DAY
from throughline.db.search.stop_words import stop_words_of
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role
from throughline.domain.recall import HistoryFilter

MAX_QUERY_CHARACTERS = 1_000
PART_WEIGHT = 0.5
"""Weight of the parts of a code-like name, since the query asked for the whole name."""

ASKING_WEIGHT = 0.4
"""Factor for words that only ask, such as `what` and `say`, in a query that ends with a question mark."""

MAX_TERMS = 32
"""Most terms of a query; further ones are ignored, since each costs an index scan."""

SHOWN_VALUE = 40
"""Most characters of an invalid filter value that its error text repeats."""

PIECE = re.compile(
    r'(?<!\S)(?P<name>author|role|tool|after|before|on):(?P<value>"[^"]*"|\S*)|"(?P<phrase>[^"]+)"', re.IGNORECASE
)
FORMS: Mapping[str, str] = {
    "author": "for example `author:anna`",
    "role": "`role:user`, `role:assistant` or `role:tool`",
    "tool": "for example `tool:grep`",
    "after": "the day as in `after:2026-03-14`",
    "before": "the day as in `before:2026-03-14`",
    "on": "the day as in `on:2026-03-14`",
}
ISO_DAY = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A parsed query: weights by term, the words without weights, the filter `only`, and the text without filters."""

    terms: Mapping[str, float]
    words: frozenset[str]
    only: HistoryFilter
    text: str


def read_query(analyzer: Analyzer, text: str, only: HistoryFilter, *, author_weight: float) -> ReadQuery:
    """Parse a query's text; its filters and phrases are added to `only`. Raises InvalidInput for an invalid filter.

    `author_weight` is the weight with which each word is also looked for among the names of authors.
    """
    text = text[:MAX_QUERY_CHARACTERS]
    pieces = tuple(PIECE.finditer(text))
    for found in pieces:
        only = _narrowed(found, only) if found["name"] else only
    rest = PIECE.sub(lambda found: "" if found["name"] else found.group(), text)
    words = _words(analyzer, rest)
    phrases = _phrases(found["phrase"] for found in pieces) or (() if words else _as_it_stands(rest))
    weights = _asking_less(analyzer, words) if rest.rstrip().endswith(("?", "？")) else words
    terms = _terms(weights, ISO_DAY.findall(rest), author_weight) if words else {}
    return ReadQuery(terms, frozenset(words), replace(only, phrases=(*only.phrases, *phrases)), rest.strip())


def read_plain(analyzer: Analyzer, text: str, only: HistoryFilter, *, author_weight: float) -> ReadQuery:
    """Return a query of the words of `text`, in which filters and double quotes have no meaning.

    Words with which people only ask, and the stop words of the text's own language, are left out, unless there are no
    others. The filter is `only`, unchanged. `author_weight` is as in `read_query`.
    """
    text = text[:MAX_QUERY_CHARACTERS]
    words = _words(analyzer, text)
    asking = {*ASKING_WORDS, *(analyzer.word(word) for word in (*ASKING_WORDS, *stop_words_of(text)))}
    words = {word: weight for word, weight in words.items() if word not in asking} or words
    return ReadQuery(_terms(words, ISO_DAY.findall(text), author_weight) if words else {}, frozenset(words), only, text)


def _asking_less(analyzer: Analyzer, words: Mapping[str, float]) -> Mapping[str, float]:
    asking = {analyzer.word(word) for word in (*ASKING_WORDS, *QUESTION_WORDS, "about")}
    return {word: weight * ASKING_WEIGHT if word in asking else weight for word, weight in words.items()}


def _phrases(quoted: Iterable[str | None]) -> tuple[str, ...]:
    stripped = ((phrase or "").strip() for phrase in quoted)
    return tuple(phrase for phrase in stripped if phrase)


def _as_it_stands(text: str) -> tuple[str, ...]:
    """Return a text without words, such as punctuation, as one phrase; empty if only blanks and quotes are left."""
    signs = text.strip(' "')
    return (signs,) if signs else ()


def _terms(words: Mapping[str, float], days: Iterable[str], author_weight: float) -> Mapping[str, float]:
    authors = {f"{AUTHOR}{word}": author_weight for word in words}
    return {**words} | authors | {f"{DAY}{day}": 1.0 for day in days}


def _words(analyzer: Analyzer, text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for term in analyzer.terms(text):
        weight = PART_WEIGHT if term.is_part else 1.0
        if term.text in weights or len(weights) < MAX_TERMS:
            weights[term.text] = max(weight, weights.get(term.text, 0.0))
    return weights


def _narrowed(found: re.Match[str], only: HistoryFilter) -> HistoryFilter:
    """Return the filter with the matched condition added. Raises InvalidInput for an invalid value."""
    name, value = found["name"].lower(), found["value"].strip('" ')
    if not value:
        raise _refused(found, "has no value")
    match name:
        case "author":
            return replace(only, author=value)
        case "tool":
            return replace(only, tool=value)
        case "role":
            return replace(only, role=_role(found, value))
        case _:
            return _dated(name, _day(found, value), only)


def _dated(name: str, day: datetime, only: HistoryFilter) -> HistoryFilter:
    """Return the filter with a date bound: `after` and `on` include the day, `before` excludes it."""
    match name:
        case "after":
            return replace(only, since=day)
        case "before":
            return replace(only, until=day)
        case _ if day.date() == date.max:
            return replace(only, since=day)
        case _:
            return replace(only, since=day, until=day + timedelta(days=1))


def _role(found: re.Match[str], value: str) -> Role:
    try:
        return Role(value.lower())
    except ValueError:
        raise _refused(found, "names no role") from None


def _day(found: re.Match[str], value: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(value), time(), UTC)
    except ValueError:
        raise _refused(found, "names no day") from None


def _refused(found: re.Match[str], what: str) -> InvalidInput:
    """Return the error for an invalid filter value; the value, which is the caller's own, is shortened to one line."""
    name = found["name"].lower()
    shown = " ".join(found.group().split())
    shown = shown if len(shown) <= SHOWN_VALUE else f"{shown[:SHOWN_VALUE]}…"
    quoted = shown.replace('"', "")
    return InvalidInput(
        f'`{shown}` {what}. Write {FORMS[name]}, or put it in double quotes ("{quoted}") to look for it as text.',
        field="q",
    )
