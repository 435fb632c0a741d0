"""Filters of the templates: how times, numbers and sizes are written."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

KILO = 1000


def moment(time: datetime) -> str:
    """Return a time as `2026-11-29 14:05`, in UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def iso(time: datetime) -> str:
    """Return a time for the attribute `datetime`, from which the page writes it in the reader's time zone."""
    return time.astimezone(UTC).isoformat()


def grouped(number: int) -> str:
    """Return a number with thin spaces between groups of three digits, as both languages read it."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


MINUTE, HOUR, DAY = 60, 3_600, 86_400


def seconds(number: float | None) -> str:
    """Return a duration in its largest unit, such as `12 s`, `5 min`, `3 h` or `2 d`; a dash for None."""
    if number is None:
        return "–"
    units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s"))
    size, unit = next(((size, unit) for size, unit in units if abs(number) >= size), units[-1])
    return f"{number / size:.0f} {unit}"


FILTERS: Mapping[str, Callable[..., str]] = {"moment": moment, "iso": iso, "grouped": grouped, "seconds": seconds}
