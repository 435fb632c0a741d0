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


FILTERS: Mapping[str, Callable[..., str]] = {"moment": moment, "iso": iso, "grouped": grouped}
