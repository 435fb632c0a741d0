import asyncio
import json
import threading
from uuid import UUID

import pytest

from fakes.own_tools import blocked
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.tools.toolbox import ToolBox

NIL = UUID(int=0)
CONTEXT = ToolContext(SessionId(NIL), UserId(NIL), RunId(NIL), idempotency_key="run:call")
OWN = "fakes.own_tools"


def make_box(*names: str, timeout_seconds: float = 5, max_result_bytes: int = 1_000) -> ToolBox:
    extra = [f"{OWN}:{name}" for name in names]
    return make_tool_box(extra, timeout_seconds, max_result_bytes, now=lambda: 0.0)


async def run(name: str, arguments: object = None, box: ToolBox | None = None) -> ToolOutcome:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return await (box or make_box(name)).run(ToolCall("call", name, text), CONTEXT)


# --- what the model is told ---------------------------------------------------------------------------------------


def test_the_schema_comes_from_annotations_and_docstring() -> None:
    (spec,) = make_box().specs([f"{OWN}:weather"])

    assert spec.name == "weather"
    assert spec.description == "Tell the weather of a city.\n\nAlways fine weather."
    assert spec.parameters["type"] == "object"
    assert spec.parameters["required"] == ["city"]
    assert spec.parameters["additionalProperties"] is False
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["city"] == {"type": "string", "description": "the city's name, in any language."}
    assert properties["days"] == {"type": "integer", "default": 1, "description": "how many days ahead."}


def test_the_context_is_not_part_of_the_schema_and_is_handed_in() -> None:
    (spec,) = make_box().specs([f"{OWN}:who_calls"])

    assert list(spec.parameters["properties"]) == ["greeting"]  # type: ignore[arg-type]  # a dict here


async def test_a_tool_that_asks_for_the_context_gets_it() -> None:
    assert await run("who_calls", {"greeting": "bye"}) == ToolOutcome("bye run:call")


def test_a_tool_without_parameters_has_an_empty_object_as_schema() -> None:
    (spec,) = make_box().specs([f"{OWN}:refuse"])

    assert spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_built_in_tools_and_own_ones_keep_the_order_they_are_named_in() -> None:
    specs = make_box().specs([f"{OWN}:say", "calculator", "current_time"])

    assert [spec.name for spec in specs] == ["say", "calculator", "current_time"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_tool", ["no_such_tool", "calculator, current_time", "module:attribute"]),
        ("no_such_module:tool", ["no_such_module", "PYTHONPATH"]),
        (f"{OWN}:no_such_function", [OWN, "no_such_function"]),
        (f"{OWN}:NOT_A_FUNCTION", ["int", "plain function"]),
        (f"{OWN}:without_docstring", ["no docstring"]),
        (f"{OWN}:without_annotation", ["'city'", "annotation"]),
        (f"{OWN}:with_anything", ["*cities", "named parameters"]),
        (f"{OWN}:with_context_misnamed", ["'caller'", "'context'"]),
        (f"{OWN}:with_unreadable_type", ["with_unreadable_type", "JSON"]),
        (f"{OWN}:calculator", [f"{OWN}:calculator", "rename"]),
        ("fakes.broken_module:tool", ["fakes.broken_module", "ZeroDivisionError"]),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused_with_its_reason(name: str, words: list[str]) -> None:
    with pytest.raises(SettingInvalid) as refusal:
        make_box().specs([name])

    for word in words:
        assert word in refusal.value.detail


def test_the_same_function_may_be_named_by_many_agents() -> None:
    box = make_box("say")

    assert box.specs([f"{OWN}:say"]) == box.specs([f"{OWN}:say"])


def test_only_marked_tools_are_not_repeatable() -> None:
    box = make_box("send_mail", "say")

    assert [box.is_repeatable(name) for name in ("send_mail", "say", "unknown")] == [False, True, True]


# --- calls that succeed -------------------------------------------------------------------------------------------


async def test_a_result_that_is_no_text_becomes_json() -> None:
    outcome = await run("weather", {"city": "Köln", "days": "2"})

    assert outcome == ToolOutcome('{"city":"Köln","degrees":22.5}')


async def test_numbers_json_does_not_know_become_words() -> None:
    assert await run("without_end") == ToolOutcome('["Infinity",1.5]')


async def test_no_arguments_at_all_count_as_an_empty_object() -> None:
    assert not (await run("say_nothing", "")).is_error


async def test_returning_nothing_is_told_in_words() -> None:
    assert await run("say_nothing") == ToolOutcome("(the tool returned nothing)")


async def test_parameters_may_have_any_name() -> None:
    arguments = {"json": "a", "schema": "b", "model_config": "c"}

    assert await run("awkward_names", arguments) == ToolOutcome('["a","b","c"]')


async def test_a_result_is_cleaned() -> None:
    assert (await run("say", {"text": "a\x00b"})).text == "a\ufffdb"


@pytest.mark.parametrize("text", ["a", "ü", "\x00"])
async def test_a_result_above_the_limit_is_cut_visibly(text: str) -> None:
    outcome = await run("say", {"text": text, "times": 5_000})

    assert outcome.text.endswith("[result cut: it had 5000 characters, more than the 1000 bytes a result may have]")
    assert len(outcome.text.encode()) <= 1_000


async def test_a_result_at_the_limit_is_left_alone() -> None:
    assert (await run("say", {"text": "a", "times": 1_000})).text == "a" * 1_000


# --- calls that fail ----------------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    outcome = await run("weathr", {}, make_box("weather"))

    assert outcome.is_error
    assert "'weathr'" in outcome.text
    assert "calculator, current_time, ask_user, weather" in outcome.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": ', ["Invalid JSON", "column"]),
        ("[]", ["object"]),
        ('"text"', ["object"]),
        ("{}", ["city: Field required", "city (required), days (optional)"]),
        ('{"city": 5}', ["city:", "string", "not 5"]),
        ('{"city": "x", "days": "many"}', ["days:", "integer", "'many'"]),
        ('{"city": "x", "unit": "stones"}', ["unit:", "'celsius' or 'kelvin'", "'stones'"]),
        ('{"city": "x", "town": "y"}', ["town:", "not permitted"]),
        ('{"city": "\\ud800"}', ["JSON"]),
        ('{"city": ' + "[" * 5_000, ["JSON"]),
    ],
)
async def test_wrong_arguments_are_answered_with_what_is_allowed(arguments: str, words: list[str]) -> None:
    outcome = await run("weather", arguments)

    assert outcome.is_error
    for word in words:
        assert word in outcome.text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("leak_secret", "ConnectionError"),
        ("leave", "SystemExit"),
        ("leave_later", "SystemExit"),
        ("cancel_itself", "CancelledError"),
        ("stop_iteration", "StopIteration"),
        ("endless", "PydanticSerializationError"),
        ("lose_a_task", "ConnectionError"),
        ("lose_tasks", "ConnectionError, TimeoutError"),
    ],
)
async def test_of_an_exception_the_model_learns_only_the_class(name: str, kind: str) -> None:
    assert await run(name) == ToolOutcome(f"{name} failed with {kind}.", is_error=True)


async def test_a_tool_can_tell_the_model_why_it_failed() -> None:
    assert await run("refuse") == ToolOutcome("the city is closed today", is_error=True)
    assert await run("refuse_in_a_task") == ToolOutcome("the city is closed today", is_error=True)


@pytest.mark.parametrize("name", ["hang", "hang_politely", "ignore_cancellation"])
async def test_a_slow_tool_is_given_up(name: str) -> None:
    outcome = await run(name, {}, make_box(name, timeout_seconds=0.05))

    assert outcome.is_error
    assert "did not answer within 0.05 seconds" in outcome.text


async def test_a_blocking_tool_does_not_block_the_others() -> None:
    box = make_box("hang", "say", timeout_seconds=HANG_SECONDS)
    hanging = [asyncio.create_task(run("hang", {}, box)) for _ in range(20)]

    quick = await run("say", {"text": "here"}, box)
    are_over = [task.done() for task in hanging]
    blocked.set()
    await asyncio.gather(*hanging)
    blocked.clear()

    assert quick == ToolOutcome("here")
    assert not any(are_over)


async def test_a_hanging_tool_cannot_keep_the_process_alive() -> None:
    await run("hang", {}, make_box("hang", timeout_seconds=0.05))

    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "tool")


async def test_cancelling_the_turn_cancels_the_call() -> None:
    call = asyncio.create_task(run("hang_politely"))
    await asyncio.sleep(0.01)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
