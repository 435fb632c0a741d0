"""JSON schemas of requested answers: the check of a schema, and of an answer against it.

Schemas come from clients, so their checks must end. A subset of JSON Schema 2020-12 is accepted, references stay inside
the schema, patterns are small, and the steps of a check are limited.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias
from urllib.parse import unquote

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.message import REPLACEMENT, clean_text
from throughline.execution.schema_patterns import (
    MAX_MATCHED_CHARACTERS,
    Matcher,
    PatternRefused,
    check_form,
    check_number,
    check_size,
)

# The check of a value against a JSON schema whose time and memory are bounded by steps.
#
# A step stands for some microseconds. Keywords take steps by the work that they do, and errors by the text and memory
# that they hold: jsonschema repeats the value in each of them.

MAX_STEPS = 100_000
"""Most steps for one answer. Some 10,000 values with a plain schema take half of them."""

MAX_ERROR_CHARACTERS = 500

CHARACTERS_PER_STEP = 50
"""Characters of an error's text that take one step."""

STEPS_OF_KEPT_ERROR = 5
"""Steps for an error that is kept until the other schemas of an anyOf have been tried. It holds some 2,500 bytes."""

COMPARED_PER_STEP = 4
NAMES_PER_STEP = 10
MATCHED_PER_STEP = 150
"""Characters of a text, times the size of the pattern, that take one step."""

STEPS_TO_COMPILE = 20
"""Steps for compiling a pattern, times its size."""

BITS_PER_STEP = 1_000

Node: TypeAlias = JsonObject | bool
Nodes: TypeAlias = Mapping[str, Node]
"""The schemas inside a schema by their places, such as `#/properties/name`."""

Errors: TypeAlias = Iterator[ValidationError]
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Errors | None]  # Any: as jsonschema calls them


class StepsUsedUp(Exception):
    """Raised inside a check that has taken MAX_STEPS."""


def place_of(reference: str) -> str:
    """Return the place that a reference inside the schema names: its percent-encoded characters are decoded."""
    return unquote(reference)


def cut(text: str) -> str:
    """Return `text`, without its middle if it is long: the value comes first, what it should be comes last."""
    half = MAX_ERROR_CHARACTERS // 2
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:half]} … {text[-half:]}"


@dataclass(slots=True)
class CountedCheck:
    """One check of a value. `nodes` are those of the schema."""

    schema: JsonObject
    nodes: Nodes
    steps: int = field(default=0, init=False)
    _matchers: dict[str, Matcher] = field(default_factory=dict, init=False)
    _sizes: dict[int, int] = field(default_factory=dict, init=False)
    """Sizes of values by their `id`. The schema and the checked value hold them as long as the check runs."""

    def find_error(self, value: JsonValue) -> ValidationError | None:
        """Return the first error of a value; of an anyOf, the one of the schema that fits best. Raises StepsUsedUp."""
        keywords: dict[str, Keyword] = {
            **Draft202012Validator.VALIDATORS,
            "$ref": self._follow,
            "anyOf": self._check_any,
            "oneOf": self._check_one,
            "not": self._check_not,
            "pattern": self._match_pattern,
            "uniqueItems": _check_unique,
            "multipleOf": self._check_multiple,
        }
        counted = {name: self._counted(name, keyword) for name, keyword in keywords.items()}
        counting = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]  # so in its stubs
        # A schema with $schema would be checked by the validator that it names, which does not count.
        root = {name: wanted for name, wanted in self.schema.items() if name != "$schema"}
        self.nodes = {**self.nodes, "#": root}
        first = next(counting(root).iter_errors(value), None)
        return None if first is None else best_match([first])

    def _counted(self, name: str, keyword: Keyword) -> Keyword:
        def counted(validator: Any, wanted: Any, value: Any, schema: Any) -> Errors:  # noqa: ANN401  # jsonschema's signature
            self._spend(1 + self._work(name, wanted, value))
            for error in keyword(validator, wanted, value, schema) or ():
                self._weigh(error)
                yield error

        return counted

    def _work(self, name: str, wanted: Any, value: Any) -> int:  # noqa: ANN401  # JSON
        """Return the steps of a keyword beyond the first: one for each schema inside it, which may have no keywords."""
        match name, value:
            case (("enum" | "const"), _):
                steps = self._size(wanted) // COMPARED_PER_STEP
            case "uniqueItems", list():
                steps = self._size(value)
            case "required", dict():
                steps = len(wanted) // NAMES_PER_STEP
            case "properties", dict():
                steps = len(wanted) // NAMES_PER_STEP + min(len(wanted), len(value))
            case ("items", list()) | ("additionalProperties", dict()):
                steps = len(value)
            case (("allOf" | "anyOf" | "oneOf"), _) | ("prefixItems", list()):
                steps = len(wanted)
            case _:
                steps = 0
        return steps

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise StepsUsedUp

    def _weigh(self, error: ValidationError) -> None:
        """Take the steps of an error, and cut its text."""
        self._spend(1 + len(error.message) // CHARACTERS_PER_STEP)
        error.message = cut(error.message)

    def _size(self, value: JsonValue) -> int:
        """Return how many values are in `value`. Long texts count as several."""
        size = self._sizes.get(id(value))
        if size is None:
            size = self._sizes[id(value)] = _count(value)
        return size

    def _first_error(self, validator: Any, value: object, schema: Node, index: int) -> ValidationError | None:  # noqa: ANN401  # jsonschema's
        error: ValidationError | None = next(validator.descend(value, schema, schema_path=index), None)
        if error is not None:
            self._spend(STEPS_OF_KEPT_ERROR)
            self._weigh(error)
        return error

    def _follow(self, validator: Any, reference: str, value: object, _schema: object) -> Errors:  # noqa: ANN401  # jsonschema's
        yield from validator.descend(value, self.nodes[place_of(reference)])

    def _check_any(self, validator: Any, schemas: list[Node], value: object, _schema: object) -> Errors:  # noqa: ANN401  # jsonschema's
        errors = []
        for index, schema in enumerate(schemas):
            error = self._first_error(validator, value, schema, index)
            if error is None:
                return
            errors.append(error)
        yield ValidationError(f"{value!r} is not valid under any of the given schemas", context=errors)

    def _check_one(self, validator: Any, schemas: list[Node], value: object, _schema: object) -> Errors:  # noqa: ANN401  # jsonschema's
        tried = [self._first_error(validator, value, schema, index) for index, schema in enumerate(schemas)]
        fitting = [schema for schema, error in zip(schemas, tried, strict=True) if error is None]
        if not fitting:
            errors = [error for error in tried if error is not None]
            yield ValidationError(f"{value!r} is not valid under any of the given schemas", context=errors)
        elif len(fitting) > 1:
            shown = ", ".join(repr(schema) for schema in fitting)
            yield ValidationError(f"{value!r} is valid under each of {shown}")

    def _check_not(self, validator: Any, schema: Node, value: object, _schema: object) -> Errors:  # noqa: ANN401  # jsonschema's
        if self._first_error(validator, value, schema, 0) is None:
            yield ValidationError(f"{value!r} should not be valid under {schema!r}")

    def _match_pattern(self, _validator: object, pattern: str, value: object, _schema: object) -> Errors:
        if not isinstance(value, str):
            return
        if len(value) > MAX_MATCHED_CHARACTERS:
            yield ValidationError(
                f"{value!r} is longer than {MAX_MATCHED_CHARACTERS:,} characters, so that its pattern is not checked"
            )
            return
        matcher = self._matchers.get(pattern)
        if matcher is None:
            matcher = self._matchers[pattern] = Matcher(pattern)
            self._spend(STEPS_TO_COMPILE * matcher.size)
        self._spend(len(value) * matcher.size // MATCHED_PER_STEP)
        if not matcher.matches(value):
            yield ValidationError(f"{value!r} does not match {pattern!r}")

    def _check_multiple(self, _validator: object, factor: float, value: object, _schema: object) -> Errors:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        (over, under), (factor_over, factor_under) = _ratio(value), _ratio(factor)
        self._spend((over.bit_length() + factor_over.bit_length()) // BITS_PER_STEP)
        if over * factor_under % (under * factor_over):
            yield ValidationError(f"{value!r} is not a multiple of {factor!r}")


def _check_unique(_validator: object, is_unique: bool, value: object, _schema: object) -> Errors:  # noqa: FBT001  # jsonschema's signature
    if is_unique and isinstance(value, list):
        written = {json.dumps(item, sort_keys=True) for item in value}
        if len(written) < len(value):
            yield ValidationError(f"{value!r} has non-unique elements")


def _ratio(number: float) -> tuple[int, int]:
    """Return the number, as it is written, as a fraction. Raises OverflowError for one too large for a double."""
    return (number, 1) if isinstance(number, int) else Decimal(repr(number)).as_integer_ratio()


def _count(value: JsonValue) -> int:
    found, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        found += 1
        if isinstance(item, str):
            found += len(item) // 100
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
            found += len(item)
    return found


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
