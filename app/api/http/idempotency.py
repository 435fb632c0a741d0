"""`Idempotency-Key`: the same request sent again is answered again, never done again."""

import hashlib
import json
from dataclasses import dataclass

from fastapi import Request
from pydantic import BaseModel

from app.domain.errors import InvalidInput

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The key of a request, None where it has none, and the fingerprint of what it asks for."""

    key: str | None
    fingerprint: str


def read_idempotency(request: Request, body: BaseModel) -> Idempotency:
    """Return the request's key. Raises InvalidInput for a key that is empty, too long or not printable ASCII."""
    given = request.headers.getlist(HEADER)
    if not given:
        return Idempotency(None, "")
    key = given[0]
    if len(given) > 1 or not 1 <= len(key) <= MAX_LENGTH or not (key.isascii() and key.isprintable()):
        raise InvalidInput(f"Send one {HEADER} of 1 to {MAX_LENGTH} printable ASCII characters.", field=HEADER)
    return Idempotency(key, _fingerprint(request, body))


def _fingerprint(request: Request, body: BaseModel) -> str:
    """Hash method, path and the validated body in one canonical spelling: order and white space do not count."""
    asked = [request.method, request.url.path, body.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
