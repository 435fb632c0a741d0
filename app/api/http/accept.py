"""Reads `Accept`: whether a client would rather have a stream than JSON."""

import math
from collections.abc import Sequence
from typing import TypeAlias

STREAM = ("text/event-stream", "text/*", "*/*")
JSON = ("application/json", "application/*", "*/*")
"""Media ranges that cover a type, the most specific first."""

Qualities: TypeAlias = dict[str, float]
NOT_WANTED = (0.0, 0)


def prefers_stream(accept: Sequence[str]) -> bool:
    """Whether an event stream is wanted more than JSON; equally wanted, the one that is named more exactly wins."""
    qualities = _read(",".join(accept))
    return _rank(qualities, STREAM) > _rank(qualities, JSON)


def _rank(qualities: Qualities, ranges: Sequence[str]) -> tuple[float, int]:
    """Return quality and exactness from the most specific range that is there."""
    for exactness, covering in zip(range(len(ranges), 0, -1), ranges, strict=True):
        if covering in qualities:
            quality = qualities[covering]
            return (quality, exactness) if quality > 0 else NOT_WANTED
    return NOT_WANTED


def _read(accept: str) -> Qualities:
    """Return each media range with its `q`; other parameters do not count."""
    found: Qualities = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        found[name] = max(_quality(parameters), found.get(name, 0.0))
    return found


def _quality(parameters: Sequence[str]) -> float:
    """Return `q`, 1 where there is none; one that is no number between 0 and 1 is taken for 0."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return _fraction(value)
    return 1.0


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and 0 <= number <= 1 else 0.0
