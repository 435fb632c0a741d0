"""Reading and validating JSON request bodies.

A body must be UTF-8 JSON with finite numbers. Its texts are cleaned (NUL, lone surrogates) before it is validated
against a pydantic model.
"""

import json
import math
import re
from email.message import Message
from typing import NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from throughline.domain.basic_types import JsonValue
from throughline.domain.message import clean_text
from throughline.http.problem_documents import field_errors
from throughline.http.route_errors import FieldError, InvalidRequest, MalformedBody, UnsupportedMediaType

Body = TypeVar("Body", bound=BaseModel)
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
JSON_LINES = frozenset({f"application/{name}" for name in ("x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines")})
MAX_DEPTH = 64
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Strings and brackets of a JSON text, for measuring its nesting depth.

The quantifier is possessive and the closing quote optional, so that an unclosed string is not scanned again and again.
"""

_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


async def read_body(request: Request, model: type[Body]) -> Body:
    """Return the request's body as `model`.

    Raises UnsupportedMediaType, MalformedBody, InvalidRequest, and the errors of the body cap (`body_cap.py`).
    """
    return validate(await read_json(request), model)


async def read_json(request: Request) -> JsonValue:
    """Return the request's body as parsed JSON, not validated.

    Raises UnsupportedMediaType, MalformedBody, InvalidRequest (nested too deeply), and the errors of the body cap.
    """
    _check_type(request)
    return parse_json(await read_bytes(request))


async def read_optional_body(request: Request, model: type[Body]) -> Body:
    """Return the request's body as `model`; a missing body counts as an empty object. Raises as `read_body` does."""
    body = await read_bytes(request)
    if not body:
        return validate({}, model)
    _check_type(request)
    return validate(parse_json(body), model)


async def read_bytes(request: Request) -> bytes:
    """Return the request's body unparsed.

    The request keeps no copy, because its response may be streamed for minutes.
    """
    return b"".join([piece async for piece in request.stream()])


def _check_type(request: Request) -> None:
    """Raise UnsupportedMediaType unless the body is declared as JSON in UTF-8.

    A body without a declared type counts as JSON.
    """
    declared = request.headers.get("content-type")
    if declared is None or declared == "application/json":
        return
    kind, charset = _read_type(declared)
    if (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))) and (
        charset in CHARSETS
    ):
        return
    raise UnsupportedMediaType("Send the body as `Content-Type: application/json` in UTF-8.")


def is_json_lines(request: Request) -> bool:
    """Return whether the request declares its body as JSON Lines in UTF-8."""
    kind, charset = _read_type(request.headers.get("content-type", "application/json"))
    return kind in JSON_LINES and charset in CHARSETS


def _read_type(declared: str) -> tuple[str, str]:
    """Return the media type and character set of a `Content-Type` header."""
    header = Message()
    header["content-type"] = declared
    return header.get_content_type(), header.get_content_charset("utf-8")


def parse_json(body: bytes) -> JsonValue:
    """Return the parsed JSON body with all its texts cleaned. Raises MalformedBody or InvalidRequest."""
    if not body:
        raise MalformedBody("The body is empty. Send a JSON object.")
    try:
        text = body.decode("utf-8")
        _check_depth(text)
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        return _clean(value) if "\\u" in text else value
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not valid UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise MalformedBody(f"The body is not valid JSON: {error.msg} at character {error.pos}.") from error
    except ValueError as error:  # an integer of thousands of digits
        raise MalformedBody("A number in the body has too many digits.") from error


def _check_depth(text: str) -> None:
    """Raise InvalidRequest if the body is nested more than MAX_DEPTH levels deep.

    The parser's own recursion limit is not relied on, because it depends on the depth of the call stack.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += _STEP.get(token.group(), 0)
        if depth > MAX_DEPTH:
            raise InvalidRequest((
                FieldError("", f"The body is nested more than {MAX_DEPTH} levels deep. Send fewer levels."),
            ))


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest((FieldError("", f"{name} is not a JSON number. Send a finite number or null."),))


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidRequest((FieldError("", "A number in the body is too large for a double. Send a smaller one."),))
    return number


def _clean(value: JsonValue) -> JsonValue:
    """Return `value` with NUL and lone surrogates replaced in all its texts.

    An object key that contains one is refused with InvalidRequest, because two keys could become the same.
    """
    match value:
        case str():
            return clean_text(value)
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {_clean_key(key): _clean(item) for key, item in value.items()}
        case _:
            return value


def _clean_key(key: str) -> str:
    if clean_text(key) != key:
        raise InvalidRequest((FieldError("", "A name in the body contains NUL or a lone surrogate. Remove it."),))
    return key


def validate(value: JsonValue, model: type[Body]) -> Body:
    """Return `value` as `model`. Raises InvalidRequest, which names each wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise InvalidRequest(field_errors(found)) from None
