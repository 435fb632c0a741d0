"""Schemas that clients send: which are refused, which answers fit, and that every check ends."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import psutil
import pytest

from fakes.scripted_model import Say, ScriptedModel
from fakes.silent_metrics import WatchedCounter
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.basic_types import JsonObject, UserId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.run import RunStatus
from throughline.execution import check_answer
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
        ("{}", '"name" is a required property'),
        ('{"name": "Cleo"}', '$.name: "Cleo" does not match "^(A|B)"'),
        ('{"name": "A"}', '$.name: "A" is shorter than 2 characters'),
        ('{"name": "Anna", "born": true}', '$.born: true is not of types "null", "integer"'),
        (
            '{"name": "Anna", "friends": [{"name": "Bo", "kind": "cow"}]}',
            '$.friends[0].kind: "cow" is not one of "cat" or "dog"',
        ),
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
        ({"type": "text"}, 'cannot be used: $.type: "text" is not'),
        ({"properties": 5}, 'cannot be used: $.properties: 5 is not of type "object"'),
        ({"nullable": True}, "has a keyword that JSON Schema 2020-12 does not have: "),
        (
            {"properties": {"a": {"nullable": True}}},
            "have: $.properties.a: Unevaluated properties are not allowed ('nullable'",
        ),
        (
            {"$ref": "https://example.org/schema"},
            "cannot fetch https://example.org/schema; a $ref names a schema in the same",
        ),
        ({"$ref": "other.json"}, "other.json"),
        (
            {"items": {"$ref": "#/$defs/none"}},
            "Pointer '/$defs/none' does not exist; a $ref names a schema in the same schema",
        ),
        (
            {"items": {"pattern": "(?=a)b"}},
            '$.items.pattern: "(?=a)b" is not a "regex"; a pattern is small and has no look-around',
        ),
        ({"pattern": r"(a)\1"}, 'is not a "regex"; a pattern is small and has no look-around and no back references'),
        ({"pattern": r"(\w{20}b){2000}"}, 'is not a "regex"; a pattern is small'),
        ({"description": "a" * MAX_SCHEMA_BYTES}, f"at most {MAX_SCHEMA_BYTES} are allowed"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema: JsonObject, told: str) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        check_schema(schema)

    assert told in str(refused.value)


def test_a_pattern_that_would_backtrack_for_ever_is_matched_at_once() -> None:
    schema: JsonObject = {"type": "string", "pattern": "^(a+)+$"}
    check_schema(schema)

    assert "does not match" in find_misfit(schema, json.dumps("a" * 100_000 + "b"))
    assert find_misfit(schema, json.dumps("a" * 100_000)) == ""


@pytest.mark.parametrize(
    "pattern",
    [
        "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^[a-z0-9._%+-]{1,64}@[a-z0-9.-]{1,63}\.[a-z]{2,24}$",
        r"^\w{1,40}$",
        r"\x{3040}|\u{3042}|a\{900}",
    ],
)
def test_a_usual_pattern_is_taken(pattern: str) -> None:
    schema: JsonObject = {"items": {"pattern": pattern}}
    check_schema(schema)

    assert find_misfit(schema, "[]") == ""


def test_patterns_are_few() -> None:
    check_schema({"anyOf": [{"pattern": "^a$"}] * 100})
    with pytest.raises(SchemaInvalid, match="has 21 different patterns; at most 20"):
        check_schema({"anyOf": [{"pattern": f"a{number}"} for number in range(21)]})
    with pytest.raises(SchemaInvalid, match="has 21 different patterns; at most 20"):
        check_schema({"patternProperties": {f"a{number}": {} for number in range(21)}})


def _chained(keyword: str, length: int) -> JsonObject:
    """Return a schema whose check applies its last schema 2 ** `length` times to a value."""
    defs: dict[str, JsonObject] = {
        f"d{number}": {keyword: [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "string"}}}  # type: ignore[dict-item]  # JSON


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_chained("allOf", 40), "a"),
        (_chained("anyOf", 40), 1),
        ({"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 2}, _nested(60)),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}] * 150, "$defs": {"a": {"anyOf": [{"type": "null"}] * 150}}},
            "a" * 200_000,
        ),
    ],
)
def test_a_check_without_end_or_of_all_memory_is_given_up(schema: JsonObject, value: object) -> None:
    check_schema(schema)

    assert "takes more than 2 s or 512 MB" in find_misfit(schema, json.dumps(value))
    assert find_misfit({"type": "string"}, '"a"') == "", "the next check is made"


@pytest.mark.slow
def test_a_long_check_does_not_hold_the_interpreter() -> None:
    misfits: list[str] = []
    checking = threading.Thread(target=lambda: misfits.append(find_misfit(_chained("allOf", 40), '"a"')))
    checking.start()
    counted = 0
    while checking.is_alive():
        checking.join(0.01)
        counted += 1

    assert misfits
    assert counted > 20, "this thread has run beside the check"


def test_the_process_of_a_thread_ends_with_it() -> None:
    before = psutil.Process().children()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(find_misfit, {"type": "string"}, '"a"').result() == ""
        (checker,) = set(psutil.Process().children()) - set(before)

    assert not checker.is_running()


def test_a_process_that_was_killed_between_checks_is_replaced() -> None:
    assert find_misfit({"type": "string"}, '"a"') == ""
    for checker in psutil.Process().children():
        if check_answer.__file__ in checker.cmdline():
            checker.kill()
            psutil.wait_procs([checker])

    assert find_misfit({"type": "string"}, '"a"') == ""


def test_lower_limits_of_the_environment_are_kept() -> None:
    limited = f"ulimit -v 400000; ulimit -t 60; exec '{sys.executable}' -P '{check_answer.__file__}'"
    asked = json.dumps({"schema": {"type": "string"}, "text": "5"})

    checked = subprocess.run(["sh", "-c", limited], input=asked, capture_output=True, text=True, check=True)

    assert json.loads(checked.stdout) == '5 is not of type "string"'


def test_many_values_with_a_plain_schema_are_checked() -> None:
    schema: JsonObject = {
        "items": {"properties": {"a": {"type": "string", "maxLength": 9}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
    }

    assert find_misfit(schema, json.dumps([{"a": "s", "b": "x"}] * 5_000)) == ""


def test_the_schema_of_an_any_of_that_fits_best_is_told() -> None:
    schema: JsonObject = {"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "string"}}}]}

    assert find_misfit(schema, '{"a": 5}') == '$.a: 5 is not of type "string"'


@pytest.mark.parametrize(
    ("value", "told"), [(1, "1 is not a multiple of 2"), (6, "is valid under more than one of"), (2, ""), (3, "")]
)
def test_one_of_takes_exactly_one(value: int, told: str) -> None:
    misfit = find_misfit({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, str(value))

    assert told in misfit
    assert (misfit == "") == (told == "")


@pytest.mark.parametrize("key", ["a\x00b", "a\nb", "a\n"])
def test_a_misfit_is_one_line_that_the_database_stores(key: str) -> None:
    misfit = find_misfit({"additionalProperties": {"type": "null"}}, json.dumps({key: 1}))

    assert '1 is not of type "null"' in misfit
    assert all(character.isprintable() for character in misfit)
    assert len(find_misfit({"additionalProperties": {"type": "null"}}, json.dumps({key * 1_000: 1}))) < 600


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    for value in ("a\ud800b", {"a\ud800b": 1}):
        assert find_misfit({"const": 1}, json.dumps(value)) == "it has half of a surrogate pair, which is no character"
    with pytest.raises(SchemaInvalid, match="half of a surrogate pair"):
        check_schema({"const": "a\ud800b"})


def test_references_are_percent_decoded() -> None:
    with pytest.raises(SchemaInvalid, match="does not exist"):
        check_schema({"properties": {"x": {"$ref": "#/$defs/a%25"}}, "$defs": {"a%25": {}}})

    for reference in ("#/%24defs/a%25", "#/$defs/a%25"):
        schema: JsonObject = {"properties": {"x": {"$ref": reference}}, "$defs": {"a%": {"type": "null"}}}
        check_schema(schema)
        assert find_misfit(schema, '{"x": 1}') == '$.x: 1 is not of type "null"'


def test_a_schema_that_refers_to_itself_for_the_same_value_ends() -> None:
    schemas: list[JsonObject] = [{"$ref": "#"}, {"anyOf": [{"type": "null"}, {"$ref": "#"}]}]
    for schema in schemas:
        check_schema(schema)
        assert find_misfit(schema, "1") == ""


def test_a_dialect_does_not_change_the_check() -> None:
    items: JsonObject = {"anyOf": [{"pattern": r"^\p{Lu}+$", "type": "string"}, {"$ref": "#"}]}
    schema: JsonObject = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array", "items": items}  # type: ignore[dict-item]  # JSON
    check_schema(schema)

    assert find_misfit(schema, '["A", ["B"]]') == ""


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


def test_a_schema_may_have_sixty_levels() -> None:
    nested: JsonObject = {}
    for _ in range(59):
        nested = {"items": nested}  # type: ignore[dict-item]  # JSON

    check_schema(nested)
    with pytest.raises(SchemaInvalid, match="is nested more than 60 levels deep"):
        check_schema({"items": nested})  # type: ignore[dict-item]  # JSON


def test_a_schema_that_rest_could_not_send_is_refused() -> None:
    nested: JsonObject = {}
    for _ in range(200):
        nested = {"items": nested}  # type: ignore[dict-item]  # JSON

    with pytest.raises(SchemaInvalid, match="is nested more than 60 levels deep"):
        check_schema(nested)
    for number in (float("inf"), float("nan")):
        with pytest.raises(SchemaInvalid, match="has NaN, an infinite number"):
            check_schema({"default": number})


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


def test_a_number_beyond_all_arithmetic_is_told() -> None:
    assert "a number that JSON does not know" in find_misfit({"type": "number"}, "1e999")


def test_a_checker_gets_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    known = {child.pid for child in psutil.Process().children()}
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(find_misfit, {"type": "number"}, "1").result() == ""
        checkers = [child for child in psutil.Process().children() if child.pid not in known]

        assert [child.environ() for child in checkers if "check_answer.py" in " ".join(child.cmdline())] == [{}]
