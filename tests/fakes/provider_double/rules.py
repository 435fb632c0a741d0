"""The two shapes of refusal that most checks need: a value of the wrong kind, and a text or list of the wrong size."""

import re

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused

FUNCTION_NAME = "^[a-zA-Z0-9_-]+$"
_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_KINDS = {type(None): "null", bool: "a boolean", int: "an integer", float: "a decimal", str: "a string"}


def kind_of(value: object) -> str:
    """Return the kind of a JSON value in OpenAI's words."""
    return _KINDS.get(type(value), "an array" if isinstance(value, list) else "an object")


def wrong_type(param: str, expected: str, value: object) -> Refused:
    """A value of the wrong JSON type."""
    return Refused(
        f"Invalid type for '{param}': expected {expected}, but got {kind_of(value)} instead.",
        param=param,
        code="invalid_type",
    )


def missing(param: str) -> Refused:
    """A parameter that must be there."""
    return Refused(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def invalid_value(param: str, value: object, supported: str) -> Refused:
    """A value outside a closed set."""
    return Refused(f"Invalid value: '{value}'. Supported values are: {supported}.", param=param, code="invalid_value")


def empty_array(param: str) -> Refused:
    """An array that must hold something."""
    return Refused(
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param=param,
        code="empty_array",
    )


def array_too_long(param: str, length: int, most: int) -> Refused:
    """An array that holds more than OpenAI takes."""
    return Refused(
        f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {length} instead.",
        param=param,
        code="array_above_max_length",
    )


def empty_string(param: str) -> Refused:
    """A text that must say something. (OpenAI lets some of these pass; Anthropic and many gateways do not.)"""
    return Refused(
        f"Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        param=param,
        code="empty_string",
    )


def check_length(param: str, text: str, longest: int) -> None:
    """Refuse a text that is too long."""
    if len(text) > longest:
        raise Refused(
            f"Invalid '{param}': string too long. Expected a string with maximum length {longest}, "
            f"but got a string with length {len(text)} instead.",
            param=param,
            code="string_above_max_length",
        )


def string_in(value: Json, field: str, param: str) -> str:
    """Return the string under `field`. Raises Refused where there is none."""
    found = value.get(field)
    if found is None:
        raise missing(f"{param}.{field}")
    if not isinstance(found, str):
        raise wrong_type(f"{param}.{field}", "a string", found)
    return found


def check_function_name(name: str, param: str) -> None:
    """Refuse a name that is no function's name."""
    check_length(param, name, 64)
    if not _FUNCTION_NAME.fullmatch(name):
        raise Refused(
            f"Invalid '{param}': string does not match pattern. "
            f"Expected a string that matches the pattern '{FUNCTION_NAME}'.",
            param=param,
            code="invalid_value",
        )
