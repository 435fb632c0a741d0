"""What a query implies beside its words: persons, days, and that it asks for a time.

Months, seasons and question words are English. A query in another language implies less and is ranked by its words.
"""

import calendar
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from throughline.db.search.analyzer import fold

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
    """The words of a query as possible names of authors, whether it asks for a time, and the days that it names."""

    names: tuple[str, ...] = ()
    asks_when: bool = False
    days: tuple[Days, ...] = ()


def cues_of(text: str, today: date | None) -> Cues:
    """Return the cues in a query's text.

    `today` is what "last spring" and a month without a year refer to. If it is None, they are ignored.
    """
    names = tuple(dict.fromkeys(word for found in WORD.findall(text) for word in (found.lower(), fold(found))))
    return Cues(names, ASKS_WHEN.match(text.lstrip()) is not None, tuple(_days(text, today)))


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
