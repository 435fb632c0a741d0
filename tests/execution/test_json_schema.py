"""Schemas that clients send: which are refused, which answers fit, and that every check ends."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from fakes.scripted_model import Say, ScriptedModel
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS
from fakes.watched_counter import WatchedCounter
from throughline.db.database import Database
from throughline.domain.basic_types import JsonObject, UserId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.run import RunStatus
from throughline.execution.compute_threads import (
    LARGE_CHARACTERS,
    compute_threads,
    run_in_compute_thread,
    run_off_loop_if_large,
    work_for,
)
from throughline.execution.json_schema import MAX_SCHEMA_BYTES, SchemaInvalid, check_schema, find_misfit
from throughline.turn.prompting.context_report import preview_context, report_context
from throughline.turn.prompting.planning import count_all_new, count_new

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

    assert "does not match" in find_misfit(schema, json.dumps("a" * 9_000 + "b"))
    assert find_misfit(schema, json.dumps("a" * 9_000)) == ""


def test_a_text_too_long_for_its_pattern_does_not_fit() -> None:
    schema: JsonObject = {"pattern": "a"}

    assert find_misfit(schema, json.dumps("a" * 10_000)) == ""
    assert "is longer than 10,000 characters, so that its pattern is not" in find_misfit(
        schema, json.dumps("a" * 10_001)
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*a[ab]{4990}c",
        "a{ 400 }",
        r"\ {400}",
        "a{50}{50}",
        "(a{20}){20}",
        "(a{20})*{20}",
        "(abcdefghij){1,30}",
        r"(\w{20}b){2,}{10}",
    ],
)
def test_a_pattern_with_large_repetitions_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaInvalid, match="has more than 300 characters with its repetitions"):
        check_schema({"items": {"pattern": pattern}})


@pytest.mark.parametrize(
    "pattern",
    [
        "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^[a-z0-9._%+-]{1,64}@[a-z0-9.-]{1,63}\.[a-z]{2,24}$",
        r"\x{3040}|\u{3042}|a\{900}",
    ],
)
def test_a_usual_pattern_is_taken(pattern: str) -> None:
    schema: JsonObject = {"items": {"pattern": pattern}}
    check_schema(schema)

    assert find_misfit(schema, "[]") == ""


def test_patterns_are_few_and_small() -> None:
    check_schema({"anyOf": [{"pattern": "^a$"}] * 100})
    with pytest.raises(SchemaInvalid, match="has a pattern at # that has 201 characters; at most 200"):
        check_schema({"pattern": "a" * 201})
    with pytest.raises(SchemaInvalid, match="has 21 different patterns; at most 20"):
        check_schema({"anyOf": [{"pattern": f"a{number}"} for number in range(21)]})
    with pytest.raises(SchemaInvalid, match=r"has patterns of 1209 characters .* at most 1000"):
        check_schema({"anyOf": [{"pattern": "a" * 195 + f"{{{number}}}"} for number in range(1, 7)]})
    with pytest.raises(SchemaInvalid, match="free spacing"):
        check_schema({"pattern": "(?ix)(a) {50}"})


DOUBLED: JsonObject = {
    "allOf": [{"$ref": "#/$defs/a"}] * 150,
    "$defs": {"a": {"allOf": [{"not": {"type": "null"}}] * 150}},
}
TRIED: JsonObject = {"anyOf": [{"$ref": "#/$defs/a"}] * 150, "$defs": {"a": {"anyOf": [{"type": "null"}] * 150}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TRIED, "a" * 20_000),
        ({**TRIED, "$defs": {"a": {"anyOf": [False] * 150}}}, "a" * 20_000),
        (DOUBLED, "a" * 20_000),
        ({**DOUBLED, "$defs": {"a": {"allOf": [{"not": False}] * 150}}}, "a" * 20_000),
        ({**DOUBLED, "$defs": {"a": {"allOf": [{"uniqueItems": True}] * 150}}}, list(range(100))),
        ({"items": {"enum": list(range(3_000))}}, [2_999] * 5_000),
        ({"items": {"required": [str(number) for number in range(2_000)]}}, [{str(n): 1 for n in range(2_000)}] * 500),
        ({"items": {"allOf": [True] * 3_000}}, [1] * 1_000),
        ({"items": {"allOf": [{}] * 3_000}}, [1] * 1_000),
        ({"allOf": [{"items": True}] * 900}, [1] * 1_000),
        ({"allOf": [{"additionalProperties": True}] * 600}, {str(number): 1 for number in range(1_000)}),
        ({"items": {"pattern": r"\w{90}|"}}, ["a" * 9_999] * 20),
    ],
)
def test_work_and_memory_take_steps(schema: JsonObject, value: object) -> None:
    check_schema(schema)

    assert "takes more than 100,000 steps" in find_misfit(schema, json.dumps(value))


def test_many_values_with_a_plain_schema_are_checked() -> None:
    schema: JsonObject = {
        "items": {"properties": {"a": {"type": "string", "maxLength": 9}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
    }

    assert find_misfit(schema, json.dumps([{"a": "s", "b": "x"}] * 5_000)) == ""


def test_the_schema_of_an_any_of_that_fits_best_is_told() -> None:
    schema: JsonObject = {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "string"}}}]}

    assert find_misfit(schema, '{"a": 5}') == "$.a: 5 is not of type 'string'"


@pytest.mark.parametrize(
    ("value", "told"), [(1, "is not valid under any"), (6, "is valid under each of"), (2, ""), (3, "")]
)
def test_one_of_takes_exactly_one(value: int, told: str) -> None:
    misfit = find_misfit({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, str(value))

    assert told in misfit
    assert (misfit == "") == (told == "")


@pytest.mark.parametrize("key", ["a\x00b", "a\ud800b", "a\nb", "a\n"])
def test_a_misfit_is_one_line_that_the_database_stores(key: str) -> None:
    misfit = find_misfit({"additionalProperties": {"type": "null"}}, json.dumps({key: 1}))

    assert "1 is not of type 'null'" in misfit
    assert all(character.isprintable() for character in misfit)
    assert len(find_misfit({"additionalProperties": {"type": "null"}}, json.dumps({key * 1_000: 1}))) < 400


def test_references_are_percent_decoded() -> None:
    with pytest.raises(SchemaInvalid, match="which names no schema in it"):
        check_schema({"properties": {"x": {"$ref": "#/$defs/a%25"}}, "$defs": {"a%25": {}}})

    for reference in ("#/%24defs/a%25", "#/$defs/a%25", "#/$defs%2Fa%25"):
        schema: JsonObject = {"properties": {"x": {"$ref": reference}}, "$defs": {"a%": {"type": "null"}}}
        check_schema(schema)
        assert find_misfit(schema, '{"x": 1}') == "$.x: 1 is not of type 'null'"


def test_a_circle_of_percent_encoded_references_is_refused() -> None:
    with pytest.raises(SchemaInvalid, match="to itself for the same value"):
        check_schema({"$defs": {"a": {"$ref": "#/%24defs/a"}}})


def test_a_dialect_does_not_change_the_check() -> None:
    """jsonschema would choose a validator by $schema, one that backtracks and does not count."""
    items: JsonObject = {"anyOf": [{"pattern": r"^\p{Lu}+$", "type": "string"}, {"$ref": "#"}]}
    schema: JsonObject = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array", "items": items}  # type: ignore[dict-item]  # JSON
    check_schema(schema)

    assert find_misfit(schema, '["A", ["B"]]') == ""
    with pytest.raises(SchemaInvalid, match=r"has '.schema' at #/items; it is allowed at the root only"):
        check_schema({"items": {"$schema": "http://json-schema.org/draft-04/schema#"}})


@pytest.mark.parametrize(
    ("factor", "text", "fits"),
    [
        (0.01, "19.99", True),
        (0.01, "19.995", False),
        (0.1, "1" + "0" * 400, True),
        (1e-300, "1e300", True),
        (3, "1" + "0" * 400, False),
        (2, "4.0", True),
        (2, "true", True),
    ],
)
def test_multiples_are_those_of_the_written_numbers(factor: float, text: str, fits: bool) -> None:  # noqa: FBT001  # parametrized
    assert (find_misfit({"multipleOf": factor}, text) == "") == fits


def test_a_number_beyond_all_arithmetic_is_told() -> None:
    assert find_misfit({"multipleOf": 0.1}, "1e400") == "it has a number that is too large to be checked"


def test_a_schema_that_rest_could_not_send_is_refused() -> None:
    nested: JsonObject = {}
    for _ in range(200):
        nested = {"items": nested}  # type: ignore[dict-item]  # JSON

    with pytest.raises(SchemaInvalid, match="is nested more than 60 levels deep"):
        check_schema(nested)
    for number in (float("inf"), float("nan")):
        with pytest.raises(SchemaInvalid, match="has NaN or an infinite number"):
            check_schema({"default": number})
    with pytest.raises(SchemaInvalid, match="has a list of 101 types"):
        check_schema({"type": list(range(101))})


@pytest.mark.parametrize(
    "unit", ["x ", *(pytest.param(unit, marks=pytest.mark.proof) for unit in (" ", "<", "漢字", "QUJD"))]
)
async def test_no_long_text_is_counted_on_the_event_loop(database: Database, unit: str) -> None:
    stage = await open_stage(database, model=ScriptedModel(Say("one"), Say("two")))
    counter = WatchedCounter()
    stage.dependencies = replace(stage.dependencies, make_counter=lambda _: counter)

    first = await stage.turn("x" + unit * (400_000 // len(unit)))
    second = await stage.turn("And now?")
    await report_context(stage.dependencies, await stage.reload())
    await preview_context(stage.dependencies, await stage.reload(), "y" + unit * 100_000)

    assert [first.status, second.status] == [RunStatus.SUCCEEDED] * 2
    assert max(counter.on_loop) <= LARGE_CHARACTERS
    assert max(counter.beside) > LARGE_CHARACTERS


async def test_many_short_messages_are_counted_together_beside_the_event_loop() -> None:
    counter = WatchedCounter()
    messages = [NewMessage(role=Role.USER, content="hi", source=Source.API)] * 1_000

    counted = await count_all_new(messages, counter)

    assert counter.on_loop == []
    assert len(counter.beside) == len(counted) == len(messages)
    assert counted[0] == await count_new(messages[0], counter)


async def test_work_on_a_short_text_costs_no_thread() -> None:
    assert await run_off_loop_if_large(LARGE_CHARACTERS, threading.get_ident) == threading.get_ident()
    assert await run_off_loop_if_large(LARGE_CHARACTERS + 1, threading.get_ident) != threading.get_ident()


async def test_so_many_threads_compute_and_no_more() -> None:
    busy, most, lock, two_at_once = 0, 0, threading.Lock(), threading.Barrier(2)

    def compute() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        two_at_once.wait(timeout=20)
        with lock:
            busy -= 1

    async with compute_threads(2):
        await asyncio.gather(*(run_in_compute_thread(compute) for _ in range(20)))

    assert most == 2


async def test_long_texts_of_one_user_do_not_wait_behind_all_those_of_another() -> None:
    order: list[str] = []
    both_wait, anna, bert = asyncio.Event(), UserId(uuid4()), UserId(uuid4())

    async def work(owner: UserId, name: str) -> None:
        work_for(owner)
        await both_wait.wait()
        await run_off_loop_if_large(LARGE_CHARACTERS + 1, lambda: order.append(name))

    async with compute_threads(2), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work(anna, "anna"))
        tasks.create_task(work(bert, "bert"))
        await asyncio.sleep(0)
        both_wait.set()

    assert order.index("bert") < 3


async def test_a_user_who_gives_up_waiting_gets_no_second_thread() -> None:
    """A thread cannot be stopped: until it is free, it is the user's one."""
    anna, has_begun, may_end, order = UserId(uuid4()), threading.Event(), threading.Event(), list[str]()

    def work_long() -> None:
        has_begun.set()
        may_end.wait(HANG_SECONDS)
        order.append("first")

    async def work(do: Callable[[], None]) -> None:
        work_for(anna)
        await run_off_loop_if_large(LARGE_CHARACTERS + 1, do)

    async with compute_threads(2):
        given_up = asyncio.create_task(work(work_long))
        await asyncio.to_thread(has_begun.wait, HANG_SECONDS)
        given_up.cancel()
        second = asyncio.create_task(work(lambda: order.append("second")))
        await asyncio.sleep(0.05)
        may_end.set()
        await second

    assert order == ["first", "second"]


async def test_a_turn_with_short_texts_waits_for_no_thread(database: Database) -> None:
    """Whatever a library does in threads of its own accord, as LangGraph and name lookups do, has others."""
    stage = await open_stage(database, model=ScriptedModel(Say("one")))
    may_end = threading.Event()
    async with compute_threads(1):
        work = run_off_loop_if_large(LARGE_CHARACTERS + 1, lambda: may_end.wait(HANG_SECONDS))
        long_work = asyncio.create_task(work)
        run = await stage.turn("What is the time?")
        may_end.set()

        assert run.status is RunStatus.SUCCEEDED
        assert await long_work, "the thread was given back before the turn had ended"
