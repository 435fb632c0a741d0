"""JSON responses. Rendering does not fail, because values are checked before they are stored."""

import json

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json

from throughline.domain.json_types import JsonValue

LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters that are legal inside JSON strings, but that many readers of event streams treat as line ends."""


def json_bytes(value: object) -> bytes:
    """Return `value` (JSON types only) as JSON in UTF-8. Text that UTF-8 cannot encode is escaped instead."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=True).encode()


def json_line(value: object) -> bytes:
    """Return `value` as JSON in UTF-8 without anything that a reader may take for the end of a line."""
    data = json_bytes(value)
    for raw, escaped in LINE_ENDS:
        data = data.replace(raw, escaped)
    return data


class JsonResponse(Response):
    """JSON response for a value of JSON types, as the shapes of `throughline.wire` render it."""

    media_type = "application/json"

    def render(self, content: JsonValue) -> bytes:
        return json_bytes(content)
