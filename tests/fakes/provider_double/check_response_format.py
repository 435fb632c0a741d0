"""What OpenAI refuses in the member `response_format` of a chat-completions request."""

import re

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.rules import wrong_type

PATH = "response_format.json_schema"
TYPES = ("json_object", "json_schema", "text")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_response_format(body: Json) -> None:
    """Raise Refused unless the request has no format, or one that the real service would take."""
    given = body.get("response_format")
    if given is None:
        return
    if not isinstance(given, dict):
        raise wrong_type("response_format", "an object", given)
    if given.get("type") not in TYPES:
        raise Refused(f"Invalid value: {given.get('type')!r}. Supported values are: {', '.join(map(repr, TYPES))}.")
    if given["type"] == "json_schema":
        _check_described(given.get("json_schema"))


def _check_described(described: object) -> None:
    if not isinstance(described, dict):
        raise Refused(f"Missing required parameter: '{PATH}'.", param=PATH, code="missing_required_parameter")
    for name in ("name", "schema"):
        if name not in described:
            path = f"{PATH}.{name}"
            raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
    if not isinstance(described["name"], str) or not _NAME.fullmatch(described["name"]):
        raise Refused(f"Invalid '{PATH}.name': string does not match pattern.", param=f"{PATH}.name")
    if not isinstance(described["schema"], dict):
        raise wrong_type(f"{PATH}.schema", "an object", described["schema"])
    unknown = sorted(described.keys() - {"name", "schema", "description", "strict"})
    if unknown:
        raise Refused(f"Unknown parameter: '{PATH}.{unknown[0]}'.", param=f"{PATH}.{unknown[0]}")
