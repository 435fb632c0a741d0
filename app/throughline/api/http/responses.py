"""JSON responses. Rendering does not fail, because values are checked before they are stored."""

import json

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json

from throughline.domain.json_types import JsonValue


def json_bytes(value: object) -> bytes:
    """Return `value` (JSON types only) as JSON in UTF-8. Text that UTF-8 cannot encode is escaped instead."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=True).encode()


class JsonResponse(Response):
    """JSON response for a value of JSON types, as the shapes of `throughline.wire` render it."""

    media_type = "application/json"

    def render(self, content: JsonValue) -> bytes:
        return json_bytes(content)
