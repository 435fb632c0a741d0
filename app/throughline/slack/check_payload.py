"""Validation of Slack's requests before other code reads them: JSON, a form, or a form with JSON in `payload`."""

import json
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

from throughline.domain.basic_types import JsonValue
from throughline.domain.message import clean_text

MAX_DEPTH = 64
JSON_TYPE = "application/json"
NAMES = frozenset({
    "type",
    "subtype",
    "channel",
    "user",
    "team",
    "user_team",
    "enterprise",
    "command",
    "reaction",
    "ts",
})
"""Fields that contain a name or an id, in addition to KEPT and fields that end in `_id`.

In some events, such a field contains an object instead.
"""

KEPT = frozenset({
    "channel",
    "channel_id",
    "context_enterprise_id",
    "context_team_id",
    "deleted_ts",
    "enterprise_id",
    "event_id",
    "event_ts",
    "team",
    "team_id",
    "thread_ts",
    "ts",
    "user",
    "user_id",
    "user_team",
})
"""Fields with a name or an id whose values are stored and searched."""

MAX_KEPT_BYTES = 64
"""Longest stored id in bytes. Slack's ids have up to about twenty.

The database keeps several ids in one index entry, whose size is limited.
"""


class MalformedPayload(ValueError):
    """Error for a request body that Slack would not send; the error's text names the defect."""


def check_payload(text: str, content_type: str) -> None:
    """Raise MalformedPayload for a request body that cannot be parsed, or that other code could not handle.

    Unknown fields are allowed.
    """
    check_body(_parsed(text, content_type))


def check_body(body: object) -> None:
    """Raise MalformedPayload for a parsed body that is no JSON object, too deep, or has an unusable event or id."""
    if not isinstance(body, dict):
        raise MalformedPayload("the body is not a JSON object")
    if _is_deep(body):
        raise MalformedPayload(f"the body is nested more than {MAX_DEPTH} levels deep")
    for part in _parts(body):
        _check_names(part)


def _parsed(text: str, content_type: str) -> JsonValue:
    """Return the parsed body, as bolt will parse it."""
    if not text.strip():
        raise MalformedPayload("the body is empty")
    if content_type.partition(";")[0].strip().lower() == JSON_TYPE or text.startswith("{"):
        return _json(text)
    form: dict[str, JsonValue] = dict(parse_qsl(text, keep_blank_values=True))
    payload = form.get("payload")
    return _json(payload) if isinstance(payload, str) else form


def _json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except RecursionError:
        raise MalformedPayload(f"the body is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:
        raise MalformedPayload("the body is not valid JSON") from None
    return value


def _is_deep(body: JsonValue) -> bool:
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    return any(isinstance(value, (dict, list)) for value in level)


def _inside(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _parts(body: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the objects that are read: the body, its first authorization, the event, and the messages in the event."""
    yield body
    if "authorizations" in body:
        yield _first(body["authorizations"])
    if "event" not in body and body.get("type") != "event_callback":
        return
    event = _event(body)
    yield event
    for name in ("message", "previous_message", "item"):
        inner = event.get(name)
        if isinstance(inner, dict):
            yield inner


def _event(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    event = body.get("event")
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise MalformedPayload("`event` is not an object with a `type`")
    if not isinstance(body.get("event_id"), str):
        raise MalformedPayload("`event_id` is missing")
    return event


def _first(authorizations: JsonValue) -> Mapping[str, JsonValue]:
    found = authorizations[0] if isinstance(authorizations, list) and authorizations else None
    if not isinstance(found, dict):
        raise MalformedPayload("`authorizations` is not a list of objects with at least one")
    return found


def _check_names(part: Mapping[str, JsonValue]) -> None:
    for key, value in part.items():
        if key in NAMES or key in KEPT or key.endswith("_id"):
            _check_name(key, value)


def _check_name(key: str, value: JsonValue) -> None:
    """Raise MalformedPayload unless the value is null, an object or a text that may be stored."""
    if value is None or isinstance(value, dict):
        return
    if not isinstance(value, str):
        raise MalformedPayload("a field that names something holds neither text nor an object")
    if clean_text(value) != value:
        raise MalformedPayload("a field that names something holds NUL or a lone surrogate")
    if key in KEPT and len(value.encode()) > MAX_KEPT_BYTES:
        raise MalformedPayload(f"`{key}` has more than {MAX_KEPT_BYTES} bytes, which no id of Slack's has")
