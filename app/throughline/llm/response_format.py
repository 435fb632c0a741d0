"""The response format of a request in the wire formats of OpenAI.

It is sent as a further member of the body: LangChain's own argument for it makes the SDK parse the answer, and fail
where it does not fit.
"""

from collections.abc import Mapping
from typing import Any

from throughline.domain.json_types import JsonValue
from throughline.domain.overrides import ResponseFormat

MEMBER = "response_format"


def wire_format(wanted: ResponseFormat) -> dict[str, JsonValue]:
    """Return the member of the body for chat completions."""
    described: dict[str, JsonValue] = {"name": wanted.name, "schema": dict(wanted.schema)}
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict is not None:
        described["strict"] = wanted.strict
    return {MEMBER: {"type": "json_schema", "json_schema": described}}


def moved_to_text(payload: Mapping[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """Return a request of OpenAI's newer wire format, in which the member is called `text.format`."""
    body = dict(payload.get("extra_body") or {})
    wanted = body.pop(MEMBER, None)
    if wanted is None or "json_schema" not in wanted:
        return dict(payload)
    text = {**(payload.get("text") or {}), "format": {"type": "json_schema", **wanted["json_schema"]}}
    return {**payload, "extra_body": body, "text": text}
