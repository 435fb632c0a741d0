"""Request headers that decide how a request is answered: `Idempotency-Key`, `Last-Event-ID` and `Accept`.

A request repeated with its idempotency key gets the same answer and is not executed again. `Accept` decides between an
event stream, a page and JSON.
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
LAST_EVENT_ID = "Last-Event-ID"
MAX_EVENT = 2**31 - 2
"""The largest number of an event that the database takes."""


STREAM = ("text/event-stream", "text/*", "*/*")
HTML = ("text/html", "text/*", "*/*")
JSON = ("application/json", "application/*", "*/*")
"""Media ranges that match JSON, the most specific first; `STREAM` and `HTML` match an event stream and a page."""

Qualities: TypeAlias = dict[str, float]
NOT_WANTED = (0.0, 0)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Idempotency key of a request, None without one, and the fingerprint of the request's content."""

    key: str | None
    fingerprint: str


NO_KEY = Idempotency(None, "")


def read_idempotency(request: Request, body: BaseModel) -> Idempotency:
    """Return the request's idempotency key and fingerprint, None and '' if it has no key.

    Raises InvalidInput if the key is repeated, empty, too long or not printable ASCII.
    """
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return NO_KEY
    key = given[0]
    if len(given) > 1 or not 1 <= len(key) <= MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            f"Send one {KEY_HEADER} header of 1 to {MAX_KEY_LENGTH} printable ASCII characters.", field=KEY_HEADER
        )
    return Idempotency(key, fingerprint_of(request, body))


def fingerprint_of(request: Request, body: BaseModel) -> str:
    """Return a hash of method, path and validated body.

    The body is hashed in a canonical form, so that the order of its keys and white space do not matter.
    """
    asked = [request.method, request.url.path, body.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_last_event_id(sent: str) -> int:
    """Return the number of the event that a reader has seen last, -1 for the beginning. Raises InvalidInput."""
    text = sent.strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_EVENT)) and int(text) <= MAX_EVENT):
        raise InvalidInput(
            f"{LAST_EVENT_ID} must be the number of an event, or -1 for the beginning.", field=LAST_EVENT_ID
        )
    return int(text)


def prefers_stream(accept: Sequence[str]) -> bool:
    """Return whether the client prefers an event stream to JSON.

    At equal quality the more specific media range wins. JSON wins if that is equal, too.
    """
    qualities = _read(",".join(accept))
    return _rank(qualities, STREAM) > _rank(qualities, JSON)


def prefers_html(accept: Sequence[str]) -> bool:
    """Return whether the client prefers an HTML page to JSON, as browsers do.

    At equal quality the more specific media range wins. JSON wins if that is equal, too.
    """
    qualities = _read(",".join(accept))
    return _rank(qualities, HTML) > _rank(qualities, JSON)


def _rank(qualities: Qualities, ranges: Sequence[str]) -> tuple[float, int]:
    """Return quality and specificity of the most specific of `ranges` that the header names.

    NOT_WANTED if it names none of them, or refuses that one with the quality 0.
    """
    for exactness, covering in zip(range(len(ranges), 0, -1), ranges, strict=True):
        if covering in qualities:
            quality = qualities[covering]
            return (quality, exactness) if quality > 0 else NOT_WANTED
    return NOT_WANTED


def _read(accept: str) -> Qualities:
    """Return each media range of an `Accept` header with its `q` value; other parameters are ignored."""
    found: Qualities = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        found[name] = max(_quality(parameters), found.get(name, 0.0))
    return found


def _quality(parameters: Sequence[str]) -> float:
    """Return the `q` value: 1 if it is missing, 0 if it is no number between 0 and 1."""
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
