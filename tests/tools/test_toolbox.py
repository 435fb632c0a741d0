import asyncio
import importlib.util
import json
import threading
from pathlib import Path
from uuid import UUID

import pytest

from fakes import own_tools
from fakes.own_tools import blocked
from fakes.stage import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.ports.hooks import Decision, PreCompact, Trigger
from throughline.tools.toolbox import ImportedHooks, ToolBox

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


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def found_under(name: str, hooks: ImportedHooks | None = None) -> object:
    return (hooks or ImportedHooks()).get(name)


def test_a_hook_is_the_function_that_the_agent_names() -> None:
    hooks = ImportedHooks()

    assert found_under("fakes.own_tools:weather", hooks) is own_tools.weather
    assert found_under("fakes.own_tools:weather", hooks) is own_tools.weather


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:before", "there is no module 'no_such_module'"),
        ("fakes.own_tools:missing", "the module fakes.own_tools has no attribute 'missing'"),
        ("fakes.broken_module:before", "importing fakes.broken_module failed with"),
        ("fakes.exiting_module:before", "importing fakes.exiting_module failed with SystemExit: 3"),
        ("fakes.grouped_module:before", "grouped_module failed with ConnectionError: 404 at http://127.0.0.1/mcp"),
        ("fakes.own_tools:NOT_A_FUNCTION", "is not a function"),
        ("fakes.own_tools:Weather", "is not a function"),
        ("threading:active_count", "must be callable with one argument"),
        ("operator:add", "must be callable with one argument"),
    ],
)
def test_what_cannot_be_a_hook_is_refused_with_its_name_and_why(name: str, words: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        ImportedHooks().get(name)

    assert refused.value.detail.startswith(f"pre_compact {name!r}: ")
    assert words in refused.value.detail
    assert "tool" not in refused.value.detail.replace("own_tools", "")


def test_a_hook_that_was_refused_is_looked_for_again() -> None:
    hooks = ImportedHooks()
    with pytest.raises(SettingInvalid):
        hooks.get("fakes.own_tools:missing")

    with pytest.raises(SettingInvalid, match="missing"):
        hooks.get("fakes.own_tools:missing")


def test_a_function_without_a_signature_to_look_at_is_taken() -> None:
    assert found_under("builtins:max") is max


def example_hook() -> object:
    spec = importlib.util.spec_from_file_location("careful_hooks", EXAMPLES / "careful_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.before_compaction


@pytest.mark.parametrize(
    ("trigger", "message_count", "must_compact", "cancels"),
    [
        ("auto", 3, False, True),
        ("auto", 3, True, False),
        ("auto", 4, False, False),
        ("manual", 3, False, False),
    ],
)
def test_the_example_hook_leaves_small_compactions_for_later(
    trigger: Trigger, message_count: int, *, must_compact: bool, cancels: bool
) -> None:
    hook = example_hook()
    assert callable(hook)
    about = PreCompact(
        trigger=trigger,
        agent="careful",
        session_id="s",
        tokens=7_000,
        target_tokens=4_000,
        message_count=message_count,
        from_position=1,
        through_position=message_count,
        instructions="",
        must_compact=must_compact,
    )

    decision = hook(about)

    assert isinstance(decision, Decision)
    assert decision.cancel is cancels
    assert bool(decision.instructions) is not cancels


def test_the_example_agent_names_the_example_hook() -> None:
    agent = load_agents([EXAMPLES], AgentDefaults(usage_threshold=0.8, summary_model="")).get("careful")

    assert agent.context.pre_compact == "careful_hooks:before_compaction"
