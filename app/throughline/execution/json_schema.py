"""JSON schemas of requested answers: the check of a schema, and of an answer against it.

Schemas come from clients, so their checks must end. A subset of JSON Schema 2020-12 is accepted, references stay inside
the schema, patterns are matched in linear time, and the steps of a check are limited.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from pydantic_core import ValidationError as NoMatch

from throughline.domain.json_types import JsonObject, JsonValue

MAX_SCHEMA_BYTES = 20_000
MAX_STEPS = 100_000
"""Most keywords that are evaluated for one answer. Some 10,000 values with a plain schema take half of them."""

MAX_ERROR_CHARACTERS = 500
KEPT_PATTERNS = 256

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

Node: TypeAlias = JsonObject | bool
Nodes: TypeAlias = Mapping[str, Node]
"""The schemas inside a schema by their references, such as `#/properties/name`."""

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]  # Any: as jsonschema calls them


class SchemaInvalid(ValueError):
    """Raised for a schema that cannot be used; the text says where, what, and what to do."""


class _StepsUsedUp(Exception):
    """Raised inside a check that has taken MAX_STEPS."""


def check_schema(schema: JsonObject) -> None:
    """Raise SchemaInvalid unless answers can be checked against `schema`."""
    size = len(json.dumps(schema, ensure_ascii=False).encode())
    if size > MAX_SCHEMA_BYTES:
        raise SchemaInvalid(f"has {size} bytes as JSON; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise SchemaInvalid(f"is not a JSON schema: {_shown(error)}") from error
    nodes = dict(_nodes(schema, "#"))
    for place, node in nodes.items():
        _check_node(place, node, nodes)
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
        found = best_match(_Counting(schema).iter_errors(value))
    except (_StepsUsedUp, RecursionError):
        return f"checking it takes more than {MAX_STEPS:,} steps: simplify the schema, or ask for less"
    except ArithmeticError:
        return "it has a number that is too large to be checked"
    return "" if found is None else _shown(found)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _shown(error: ValidationError | SchemaError) -> str:
    text, half = error.message, MAX_ERROR_CHARACTERS // 2
    if len(text) > MAX_ERROR_CHARACTERS:  # the value comes first, what it should be comes last
        text = f"{text[:half]} … {text[-half:]}"
    return text if error.json_path == "$" else f"{error.json_path[:MAX_ERROR_CHARACTERS]}: {text}"


def _nodes(node: Node, place: str) -> Iterator[tuple[str, Node]]:
    """Yield the schema and all schemas inside it with their references. Its form has been checked."""
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
    reference = node.get("$ref", "#")
    if reference not in nodes:
        raise SchemaInvalid(
            f"has the $ref {str(reference)[:200]!r} at {place[:200]}, which names no schema in it; write one such as "
            "#/$defs/name"
        )
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        _check_pattern(place, pattern)


def _check_pattern(place: str, pattern: str) -> None:
    try:
        _matcher(pattern)
    except PatternError as error:
        raise SchemaInvalid(
            f"has a pattern at {place[:200]} that cannot be matched in linear time; look-around and back references "
            "are not supported"
        ) from error


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
                yield value
            case list():
                yield from (f"{place}/{name}/{index}" for index in range(len(value)))
            case _:
                yield f"{place}/{name}"


@lru_cache(KEPT_PATTERNS)
def _matcher(pattern: str) -> SchemaValidator:
    """Return a matcher with the linear engine of pydantic. Raises PatternError."""
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True))


def _match_pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    if not isinstance(value, str):
        return
    try:
        _matcher(pattern).validate_python(value)
    except NoMatch:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _check_unique(validator: Any, is_unique: bool, value: object, _schema: object) -> Iterator[ValidationError]:  # noqa: ANN401, FBT001  # jsonschema's signature
    if is_unique and validator.is_type(value, "array") and isinstance(value, list):
        written = {json.dumps(item, sort_keys=True) for item in value}
        if len(written) < len(value):
            yield ValidationError(f"{value!r} has non-unique elements")


@dataclass(slots=True)
class _Counting:
    """A validator that counts its steps."""

    schema: JsonObject
    steps: int = field(default=0, init=False)

    def iter_errors(self, value: JsonValue) -> Iterator[ValidationError]:
        """Yield the errors of a value. Raises _StepsUsedUp."""
        keywords = {**Draft202012Validator.VALIDATORS, "pattern": _match_pattern, "uniqueItems": _check_unique}
        counted = {name: self._counted(keyword) for name, keyword in keywords.items()}
        counting = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]  # so in its stubs
        yield from counting(self.schema).iter_errors(value)

    def _counted(self, keyword: Keyword) -> Keyword:
        def counted(*arguments: Any) -> Iterator[ValidationError] | None:  # noqa: ANN401  # jsonschema's signature
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise _StepsUsedUp
            return keyword(*arguments)

        return counted
