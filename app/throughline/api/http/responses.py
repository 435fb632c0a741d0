"""JSON responses that never fail: what is rendered here has been checked before it was stored."""

import json

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json

from throughline.domain.json_types import JsonValue


def json_bytes(value: object) -> bytes:
    """Return `value` (JSON types only) as UTF-8; text that UTF-8 cannot hold is escaped instead."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=True).encode()


class JsonResponse(Response):
    """A value of JSON types, as the shapes of `throughline.wire` render it."""

    media_type = "application/json"

    def render(self, content: JsonValue) -> bytes:
        """Return the body."""
        return json_bytes(content)
