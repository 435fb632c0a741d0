"""Schemas that clients send: which are refused, which answers fit, and that every check ends."""

import json

import pytest

from throughline.domain.json_types import JsonObject
from throughline.execution.json_schema import MAX_SCHEMA_BYTES, SchemaInvalid, check_schema, find_misfit

PERSON: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^(A|B)", "minLength": 2},
        "born": {"type": ["integer", "null"], "minimum": 1900},
        "friends": {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True},
        "kind": {"$ref": "#/$defs/kind~1of"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"kind/of": {"enum": ["cat", "dog"]}},
}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Anna"}',
        ' {"name": "Bo", "born": null, "kind": "cat", "friends": [{"name": "Al"}, {"name": "Al", "born": 1901}]}\n',
        '{"name": "Anna", "born": 1950.0}',
    ],
)
def test_an_answer_that_fits_has_no_misfit(text: str) -> None:
    check_schema(PERSON)

    assert find_misfit(PERSON, text) == ""


@pytest.mark.parametrize(
    ("text", "misfit"),
    [
        ("{}", "'name' is a required property"),
        ('{"name": "Cleo"}', "$.name: 'Cleo' does not match '^(A|B)'"),
        ('{"name": "A"}', "$.name: 'A' is too short"),
        ('{"name": "Anna", "born": true}', "$.born: True is not of type 'integer', 'null'"),
        ('{"name": "Anna", "friends": [{"name": "Bo", "kind": "cow"}]}', "$.friends[0].kind: 'cow' is not one of"),
        ('{"name": "Anna", "friends": [{"name": "Bo"}, {"name": "Bo"}]}', "has non-unique elements"),
        ('{"name": "Anna", "age": 3}', "Additional properties are not allowed ('age' was unexpected)"),
        ('```json\n{"name": "Anna"}\n```', "it is not JSON alone: Expecting value at character 0"),
        ('{"name": "Anna"} Here you are.', "it is not JSON alone: Extra data at character 17"),
        ("", "it is not JSON alone"),
        ('{"name": "Anna", "born": NaN}', "it has a number that JSON does not know"),
        (
            '{"name": "Anna", "born": ' + "1" * 5_000 + "}",
            "it has a number that JSON does not know, or one of too many",
        ),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_why(text: str, misfit: str) -> None:
    assert misfit in find_misfit(PERSON, text)


def test_a_long_value_is_shown_in_part() -> None:
    assert 500 < len(find_misfit(PERSON, json.dumps({"name": "C" * 100_000}))) < 600


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "text"}, "is not a JSON schema: $.type: 'text' is not valid"),
        ({"properties": 5}, "is not a JSON schema: $.properties: 5 is not of type 'object'"),
        ({"nullable": True}, "has 'nullable' at #, which is not supported; supported: $comment, $defs, $ref"),
        ({"properties": {"a": {"if": {}}}}, "has 'if' at #/properties/a, which is not supported"),
        (
            {"$ref": "https://example.org/schema"},
            "has the $ref 'https://example.org/schema' at #, which names no schema",
        ),
        ({"items": {"$ref": "#/$defs/none"}}, "has the $ref '#/$defs/none' at #/items, which names no schema"),
        ({"$ref": "#"}, "refers at # to itself for the same value"),
        (
            {"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}},
            "refers at #/$defs/a to itself for the same value",
        ),
        ({"not": {"allOf": [{"$ref": "#"}]}}, "to itself for the same value"),
        ({"pattern": "(?=a)b"}, "has a pattern at # that cannot be matched in linear time"),
        ({"pattern": r"(a)\1"}, "has a pattern at # that cannot be matched in linear time"),
        ({"description": "a" * MAX_SCHEMA_BYTES}, f"at most {MAX_SCHEMA_BYTES} are allowed"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema: JsonObject, told: str) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        check_schema(schema)

    assert told in str(refused.value)


def test_a_schema_that_doubles_its_steps_again_and_again_is_given_up() -> None:
    defs: dict[str, JsonObject] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(40)
    }
    schema: JsonObject = {"$ref": "#/$defs/d0", "$defs": {**defs, "d40": {"type": "string"}}}  # type: ignore[dict-item]  # JSON
    check_schema(schema)

    assert "takes more than 100,000 steps" in find_misfit(schema, '"a"')


def test_a_pattern_that_would_backtrack_for_ever_is_matched_at_once() -> None:
    schema: JsonObject = {"type": "string", "pattern": "^(a+)+$"}
    check_schema(schema)

    assert "does not match" in find_misfit(schema, json.dumps("a" * 50_000 + "b"))
    assert find_misfit(schema, json.dumps("a" * 50_000)) == ""


@pytest.mark.parametrize("text", ["1" + "0" * 400, "1e400"])
def test_numbers_beyond_all_arithmetic_are_told(text: str) -> None:
    assert find_misfit({"multipleOf": 0.1}, text) == "it has a number that is too large to be checked"
