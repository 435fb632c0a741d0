"""The provider's requested waiting time, from an error's headers, or from the body (Google)."""

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_DELAY = re.compile(r"^(\d+(?:\.\d+)?)s$")


def read_retry_after(headers: Mapping[str, str], body: Mapping[str, object]) -> float | None:
    """Return the seconds to wait, None if the error states no usable time.

    A date is compared with the response's own `Date` header, because the provider's clock counts.
    """
    for candidate in (_milliseconds(headers), _seconds(headers), _date(headers), _google_delay(body)):
        if candidate is not None and math.isfinite(candidate) and candidate >= 0:
            return candidate
    return None


def _milliseconds(headers: Mapping[str, str]) -> float | None:
    value = _number(headers.get("retry-after-ms"))
    return None if value is None else value / 1000


def _seconds(headers: Mapping[str, str]) -> float | None:
    return _number(headers.get("retry-after"))


def _date(headers: Mapping[str, str]) -> float | None:
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _google_delay(body: Mapping[str, object]) -> float | None:
    """Return the delay in Google's error details: `[{"@type": "…RetryInfo", "retryDelay": "13s"}]`."""
    details = body.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        match = _DELAY.match(delay) if isinstance(delay, str) else None
        if match:
            return float(match.group(1))
    return None


def _number(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None
