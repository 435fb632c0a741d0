"""The request headers that decide how a request is answered: `Idempotency-Key` and `Accept`.

The same request sent again with its key is answered again, never done again; `Accept` says whether a client would
rather have a stream than JSON.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fastapi import Request
from pydantic import BaseModel

from throughline.domain.errors import InvalidInput

KEY_HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_KEY_LENGTH = 255

STREAM = ("text/event-stream", "text/*", "*/*")
JSON = ("application/json", "application/*", "*/*")
"""Media ranges that cover a type, the most specific first."""

Qualities: TypeAlias = dict[str, float]
NOT_WANTED = (0.0, 0)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The key of a request, None where it has none, and the fingerprint of what it asks for."""

    key: str | None
    fingerprint: str


def read_idempotency(request: Request, body: BaseModel) -> Idempotency:
    """Return the request's key. Raises InvalidInput for a key that is empty, too long or not printable ASCII."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return Idempotency(None, "")
    key = given[0]
    if len(given) > 1 or not 1 <= len(key) <= MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            f"Send one {KEY_HEADER} of 1 to {MAX_KEY_LENGTH} printable ASCII characters.", field=KEY_HEADER
        )
    return Idempotency(key, _fingerprint(request, body))


def _fingerprint(request: Request, body: BaseModel) -> str:
    """Hash method, path and the validated body in one canonical spelling: order and white space do not count."""
    asked = [request.method, request.url.path, body.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
