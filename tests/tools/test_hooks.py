import importlib.util
from pathlib import Path

import pytest

from fakes import own_tools
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.domain.errors import SettingInvalid
from throughline.ports.hooks import Decision, PreCompact, Trigger
from throughline.tools.toolbox import ImportedHooks

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
