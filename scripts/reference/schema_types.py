"""What a value may be, in words, from its JSON schema."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from scripts.reference.markdown import code

Schema: TypeAlias = Mapping[str, Any]  # Any: a JSON schema has no type of its own
CHOICES = re.compile(r"\^\(([\w|]+)\)\$")
"""A pattern that is a choice of words."""

FORMATS = {"uuid": "UUID", "date-time": "time", "path": "path", "directory-path": "path"}
PLURALS = {"object": "objects", "text": "texts", "whole number": "whole numbers", "number": "numbers", "UUID": "UUIDs"}


def type_in_words(schema: Schema, definitions: Schema) -> str:
    """Return what the schema allows: a type with its range, or the allowed values. `null` is not mentioned."""
    if "$ref" in schema:
        return type_in_words(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        forms = (type_in_words(form, definitions) for form in schema["anyOf"] if form.get("type") != "null")
        return " or ".join(dict.fromkeys(forms))
    if values := allowed_values(schema):
        return ", ".join(map(code, values))
    if schema.get("type") == "array":
        return _list_in_words(schema, definitions)
    return _plain_type(schema) + range_in_words(schema, ", ")


def allowed_values(schema: Schema) -> tuple[str, ...]:
    """Return the values that the schema lists, as JSON writes them; empty if it does not list them."""
    if choices := CHOICES.fullmatch(schema.get("pattern", "")):
        return tuple(choices[1].split("|"))
    if schema.get("type") == "boolean":
        return ("true", "false")
    return tuple(map(str, schema.get("enum", [schema["const"]] if "const" in schema else ())))


def range_in_words(schema: Schema, before: str = "") -> str:
    """Return the range of a number or of a text's length with `before` in front of it; '' if there is none."""
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{before}{_number(low)} to {_number(high)}"
    ends = [
        *([f"above {_number(above)}"] if above is not None else []),
        *([f"{_number(low)} or more"] if low is not None else []),
        *([f"at most {_number(high)}"] if high is not None else []),
        *([f"below {_number(below)}"] if below is not None else []),
        *([f"at most {_number(schema['maxLength'])} characters"] if "maxLength" in schema else []),
    ]
    return before + ", ".join(ends) if ends else ""


def _list_in_words(schema: Schema, definitions: Schema) -> str:
    items = schema.get("items", {})
    form = type_in_words(items, definitions)
    most = f", up to {schema['maxItems']}" if "maxItems" in schema else ""
    return f"list of {PLURALS.get(form.partition(',')[0], form)}{most}"


def _plain_type(schema: Schema) -> str:
    match schema.get("type"):
        case "string":
            return FORMATS.get(schema.get("format", ""), "text")
        case "integer":
            return "whole number"
        case "number":
            return "number"
        case "object":
            return "object"
        case _:
            return "any value"


def _number(value: float) -> str:
    """Return a number as people write it: `1,000`, `0.5`. A bound of a 64-bit integer is written as a power."""
    if abs(value) >= 2**62:
        return f"{'-' if value < 0 else ''}2^63"
    return f"{value:,}" if isinstance(value, int) or not value.is_integer() else f"{int(value):,}"
