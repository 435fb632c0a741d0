"""JSON schemas of requested answers: the check of a schema, and of an answer against it.

Schemas come from clients, so their checks must end. A subset of JSON Schema 2020-12 is accepted, references stay inside
the schema, patterns are small, and the steps of a check are limited.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError

from throughline.domain.json_types import JsonObject, JsonValue
from throughline.domain.text import REPLACEMENT, clean_text
from throughline.execution.counted_check import MAX_STEPS, CountedCheck, Node, Nodes, StepsUsedUp, cut, place_of
from throughline.execution.schema_patterns import PatternRefused, check_form, check_number, check_size

MAX_SCHEMA_BYTES = 20_000
MAX_LEVELS = 60
"""Most levels of lists and objects in a schema. A request over REST has at most 64, four of them around the schema."""

MAX_TYPES = 100
"""Most names in a list under `type`. The check of its form takes time by their square."""

MAX_PATH_CHARACTERS = 300

ONE_SCHEMA = frozenset({"items", "additionalProperties", "not"})
LISTS_OF_SCHEMAS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
VALUES = frozenset({
    *("$schema", "$comment", "$ref", "title", "description", "default", "examples", "deprecated", "readOnly"),
    *("writeOnly", "type", "enum", "const", "format", "required", "pattern", "minLength", "maxLength", "minimum"),
    *("maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties"),
})
KEYWORDS = ONE_SCHEMA | LISTS_OF_SCHEMAS | MAPS_OF_SCHEMAS | VALUES
IN_PLACE = frozenset({"anyOf", "allOf", "oneOf", "not", "$ref"})
"""Keywords whose schemas apply to the same value, so that a circle of them would never end."""


class SchemaInvalid(ValueError):
    """Raised for a schema that cannot be used; the text says where, what, and what to do."""


def check_schema(schema: JsonObject) -> None:
    """Raise SchemaInvalid unless answers can be checked against `schema`."""
    _check_levels(schema)
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode(errors="surrogatepass"))
    except ValueError as error:
        raise SchemaInvalid("has NaN or an infinite number, which JSON does not know; remove it") from error
    if size > MAX_SCHEMA_BYTES:
        raise SchemaInvalid(f"has {size} bytes as JSON; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(()))  # patterns are checked below
    except SchemaError as error:
        raise SchemaInvalid(f"is not a JSON schema: {_shown(error)}") from error
    nodes = dict(_nodes(schema, "#"))
    for place, node in nodes.items():
        _check_node(place, node, nodes)
    _check_patterns(nodes)
    _check_circles(nodes)


def find_misfit(schema: JsonObject, text: str) -> str:
    """Return why `text` is no JSON that fits `schema`, '' if it is. The schema has passed `check_schema`."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return "it is nested too deeply"
    except json.JSONDecodeError as error:
        return f"it is not JSON alone: {error.msg} at character {error.pos}"
    except ValueError:  # a constant such as NaN, or an integer of thousands of digits
        return "it has a number that JSON does not know, or one of too many digits"
    try:
        found = CountedCheck(schema, dict(_nodes(schema, "#"))).find_error(value)
        return "" if found is None else _shown(found)
    except (StepsUsedUp, RecursionError, ArithmeticError) as error:
        return _given_up(error)


def _given_up(error: Exception) -> str:
    match error:
        case StepsUsedUp():
            return f"checking it takes more than {MAX_STEPS:,} steps: simplify the schema, or ask for less"
        case RecursionError():
            return "it is nested too deeply to be checked"
        case _:
            return "it has a number that is too large to be checked"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check_levels(schema: JsonObject) -> None:
    """Raise SchemaInvalid for a schema with more than MAX_LEVELS levels, or with a long list under `type`."""
    level: list[object] = [schema]
    for _ in range(MAX_LEVELS):
        level = [below for value in level for below in _one_level_below(value)]
    if any(isinstance(value, dict | list) for value in level):
        raise SchemaInvalid(f"is nested more than {MAX_LEVELS} levels deep; remove some levels")


def _one_level_below(value: object) -> Iterable[object]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return ()
    types = value.get("type")
    if isinstance(types, list) and len(types) > MAX_TYPES:
        raise SchemaInvalid(f"has a list of {len(types)} types; at most {MAX_TYPES} are allowed")
    return value.values()


def _shown(error: ValidationError | SchemaError) -> str:
    """Return the error in one line that the database can store."""
    text, path = cut(error.message), error.json_path[:MAX_PATH_CHARACTERS]
    path = "".join(character if character.isprintable() else REPLACEMENT for character in path)
    return clean_text(text if path == "$" else f"{path}: {text}")


def _nodes(node: Node, place: str) -> Iterator[tuple[str, Node]]:
    """Yield the schema and all schemas inside it with their places. Its form has been checked."""
    yield place, node
    if isinstance(node, bool):
        return
    for name, value in node.items():
        inner: dict[str, Any] = {}  # Any: schemas, as the form of the keyword says
        if name in ONE_SCHEMA:
            inner = {name: value}
        elif name in LISTS_OF_SCHEMAS and isinstance(value, list):
            inner = {f"{name}/{index}": item for index, item in enumerate(value)}
        elif name in MAPS_OF_SCHEMAS and isinstance(value, dict):
            inner = {f"{name}/{_escaped(key)}": item for key, item in value.items()}
        for step, found in inner.items():
            yield from _nodes(found, f"{place}/{step}")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _check_node(place: str, node: Node, nodes: Nodes) -> None:
    if isinstance(node, bool):
        return
    if unknown := sorted(node.keys() - KEYWORDS):
        allowed = ", ".join(sorted(KEYWORDS))
        raise SchemaInvalid(f"has {unknown[0][:80]!r} at {place[:200]}, which is not supported; supported: {allowed}")
    if "$schema" in node and place != "#":
        raise SchemaInvalid(f"has '$schema' at {place[:200]}; it is allowed at the root only")
    reference = node.get("$ref", "#")
    if place_of(str(reference)) not in nodes:
        raise SchemaInvalid(
            f"has the $ref {str(reference)[:200]!r} at {place[:200]}, which names no schema in it; write one such as "
            "#/$defs/name"
        )


def _check_patterns(nodes: Nodes) -> None:
    found = {
        pattern: place
        for place, node in nodes.items()
        if isinstance(node, dict) and isinstance(pattern := node.get("pattern"), str)
    }
    for pattern, place in found.items():
        _check_pattern(check_size, pattern, place)
    if refused := check_number(found):
        raise SchemaInvalid(refused)
    for pattern, place in found.items():
        _check_pattern(check_form, pattern, place)


def _check_pattern(check: Callable[[str], None], pattern: str, place: str) -> None:
    try:
        check(pattern)
    except PatternRefused as error:
        raise SchemaInvalid(f"has a pattern at {place[:200]} that {error}") from error


def _check_circles(nodes: Nodes) -> None:
    """Raise SchemaInvalid if a schema applies itself again to the same value."""
    ended: set[str] = set()

    def visit(place: str, above: tuple[str, ...]) -> None:
        if place in above:
            raise SchemaInvalid(f"refers at {place[:200]} to itself for the same value; remove that $ref")
        if place in ended:
            return
        for inner in _applied_in_place(place, nodes):
            visit(inner, (*above, place))
        ended.add(place)

    for place in nodes:
        visit(place, ())


def _applied_in_place(place: str, nodes: Nodes) -> Iterator[str]:
    node = nodes[place]
    if isinstance(node, bool):
        return
    for name in IN_PLACE & node.keys():
        value = node[name]
        match value:
            case str():
                yield place_of(value)
            case list():
                yield from (f"{place}/{name}/{index}" for index in range(len(value)))
            case _:
                yield f"{place}/{name}"
