"""Parsing of search queries: words, "phrases" and filters.

Filters are `author:anna`, `role:user`, `tool:grep`, `after:2026-03-01`, `before:2026-04-01` and `on:2026-03-14`. A text
in double quotes must occur exactly as written, even if it looks like a filter. All other text, such as `error:` or
`http://…`, is searched as words. Words also match author names and days, and such messages rank higher. A filter with
an invalid value raises InvalidInput, since it would otherwise find too much or nothing.
"""

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta

from throughline.context.questions import ASKING_WORDS, QUESTION_WORDS, asks
from throughline.db.search.analyzer import Analyzer, fold, stop_words_of
from throughline.db.search.entries import AUTHOR, DAY
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role
from throughline.domain.recall import HistoryFilter

# What a query implies beside its words: persons, days, and that it asks for a time.
#
# Months, seasons, and the words for a time, the assistant and the user are English. A query in another language implies
# less and is ranked by its words.

MENTIONED_DAYS = 7
"""Days after a named day in which it is still talked about: "we met on 5 May" is often written some days later."""

YEARS_BACK = 10
"""Number of most recent years in which a month named without a year is looked for."""

MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The first month of each season of the northern hemisphere."""

SEASON_MONTHS = 3

_ENGLISH = re.IGNORECASE | re.ASCII
"""Flags of the patterns for English words. Without ASCII, a letter such as "ſ" would match "s".

The word would then be in no table.
"""

WORD = re.compile(r"[^\W_]+")
OF_ASSISTANT = re.compile(
    r"\b(?:(?:did|have|had|were|was) you|you (?:\w+ )?(?:said|told|suggested|recommended|gave|mentioned|explained|"
    r"wrote|proposed|advised|listed|showed)|your (?:answer|suggestion|recommendation|advice|explanation|proposal)s?)\b",
    _ENGLISH,
)
OF_USER = re.compile(r"\b(?:i|my|me|mine|we|our|us)\b", _ENGLISH)
ASKS_WHEN = re.compile(
    r"(?:when|how long|(?:(?:on|in|at|since|until) )?(?:what|which) (?:date|day|weekday|week|month|year|time))\b",
    _ENGLISH,
)
_MONTH = "|".join(MONTHS)
MONTH = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|[nr]d|th)?\s+(?:of\s+)?)?(?P<month>{_MONTH})\b"
    r"(?:\s+(?P<after>\d{1,2})(?:st|[nr]d|th)?\b(?!\d))?(?:,?\s+(?:of\s+)?(?P<year>(?:19|20)\d\d)\b)?",
    _ENGLISH,
)
ISO = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
LAST = re.compile(rf"\b(?:(?P<day>yesterday)|last (?P<what>week|month|year|{'|'.join(SEASONS)}))\b", _ENGLISH)


@dataclass(frozen=True, slots=True)
class Days:
    """A range of time in which a named day is talked about: the day itself and MENTIONED_DAYS more.

    `until` is excluded.
    """

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Cues:
    """What a query implies: its words as possible names of authors, and the days that it names.

    `asks_when`: it asks for a time. `asks_of_assistant`: it asks what the assistant said ("what did you suggest").
    `asks_of_user`: it is in the first person ("my first plan"), and not about the assistant.
    """

    names: tuple[str, ...] = ()
    asks_when: bool = False
    days: tuple[Days, ...] = ()
    asks_of_assistant: bool = False
    asks_of_user: bool = False


def cues_of(text: str, today: date | None) -> Cues:
    """Return the cues in a query's text.

    `today` is what "last spring" and a month without a year refer to. If it is None, they are ignored.
    """
    names = tuple(dict.fromkeys(word for found in WORD.findall(text) for word in (found.lower(), fold(found))))
    asks_of_assistant = OF_ASSISTANT.search(text) is not None
    return Cues(
        names,
        ASKS_WHEN.match(text.lstrip()) is not None,
        tuple(_days(text, today)),
        asks_of_assistant,
        not asks_of_assistant and OF_USER.search(text) is not None,
    )


def _days(text: str, today: date | None) -> Iterator[Days]:
    for found in ISO.finditer(text):
        yield from _of_day(int(found[1]), int(found[2]), int(found[3]))
    for found in MONTH.finditer(text):
        yield from _of_month(found, today)
    if today is not None:
        yield from (_of_last(found, today) for found in LAST.finditer(text))


def _of_month(found: re.Match[str], today: date | None) -> Iterator[Days]:
    """Yield the days that "May", "May 2023" or "8 May, 2023" stands for; lower-case "may" alone is a verb.

    Without a year, these are the days of each of the last YEARS_BACK years.
    """
    month, day = MONTHS[found["month"].lower()], found["before"] or found["after"]
    if found["month"] == "may" and not (day or found["year"]):
        return
    for year in _years(found["year"], today):
        if day:
            yield from _of_day(year, month, int(day))
        else:
            yield _range(date(year, month, 1), calendar.monthrange(year, month)[1])


def _years(named: str | None, today: date | None) -> Sequence[int]:
    if named:
        return [int(named)]
    return () if today is None else range(today.year, max(today.year - YEARS_BACK, 0), -1)


def _of_day(year: int, month: int, day: int) -> Iterator[Days]:
    try:
        yield _range(date(year, month, day), 1)
    except (ValueError, OverflowError):  # no such day, such as 31 April or the year 0000; or the calendar ends
        return


def _of_last(found: re.Match[str], today: date) -> Days:
    """Return the days of "yesterday", "last week" and the like, relative to `today`."""
    if found["day"]:
        return _range(today - timedelta(days=1), 1)
    match what := found["what"].lower():
        case "week":
            return _range(today - timedelta(days=today.weekday() + 7), 7)
        case "month":
            last = today.replace(day=1) - timedelta(days=1)
            return _range(last.replace(day=1), last.day)
        case "year":
            return _range(date(today.year - 1, 1, 1), 365 + calendar.isleap(today.year - 1))
        case _:
            year = today.year
            while _end_of_season(year, SEASONS[what]) > today:
                year -= 1
            start = date(year, SEASONS[what], 1)
            return _range(start, (_end_of_season(year, SEASONS[what]) - start).days)


def _end_of_season(year: int, first_month: int) -> date:
    """Return the day after the season that begins in this month."""
    months = year * 12 + first_month - 1 + SEASON_MONTHS
    return date(months // 12, months % 12 + 1, 1)


def _range(first: date, length: int) -> Days:
    since = datetime.combine(first, time(), UTC)
    return Days(since, since + timedelta(days=length + MENTIONED_DAYS))


MAX_QUERY_CHARACTERS = 1_000
PART_WEIGHT = 0.5
"""Weight of the parts of a code-like name, since the query asked for the whole name."""

ASKING_WEIGHT = 0.4
"""Factor for words that only ask, such as `what` and `say`, in a query that asks for something."""

_TALK = """
    about across aspects brought chat chats comprehensive conversation conversations discussion discussions
    overview provide summarise summarize summary throughout walk"""
TALK_WORDS = frozenset(_TALK.split())
"""Words with which people ask for what was said in a whole conversation. They tell little about its subject."""

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
    weights = _asking_less(analyzer, words) if asks(rest) else words
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
    kept = _asking_less(analyzer, {word: weight for word, weight in words.items() if word not in asking}) or words
    return ReadQuery(_terms(kept, ISO_DAY.findall(text), author_weight) if kept else {}, frozenset(kept), only, text)


def _asking_less(analyzer: Analyzer, words: Mapping[str, float]) -> Mapping[str, float]:
    asking = {analyzer.word(word) for word in (*ASKING_WORDS, *QUESTION_WORDS, *TALK_WORDS)}
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
