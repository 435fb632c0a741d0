"""LangChain's tools as an agent's tools: `@tool`, `StructuredTool`, a list, a toolkit."""

import asyncio
import json
from typing import Annotated
from uuid import UUID

import pytest
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException, tool
from langchain_core.tools.base import InjectedToolCallId

from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.tools.tool import CallLimits
from throughline.tools.toolbox import ToolBox

CONTEXT = ToolContext(SessionId(UUID(int=1)), UserId(UUID(int=2)), RunId(UUID(int=3)), "run:call")
HERE = "tools.test_langchain_tools"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def slow_add(a: int) -> int:
    """Add one, after a moment."""
    await asyncio.sleep(0)
    return a + 1


@tool
def grumble(text: str) -> str:
    """Raise whatever is asked for."""
    if text == "mine":
        raise ToolException("try a longer text")
    raise RuntimeError("s3cret")


@tool
def injected(text: str, call: Annotated[str, InjectedToolCallId]) -> str:
    """Take what only LangGraph gives."""
    return text + call


def multiply(a: int, b: int) -> int:
    return a * b


structured = StructuredTool.from_function(multiply, name="times", description="Multiply two numbers.")


class Shout(BaseTool):
    name: str = "shout"
    description: str = "Write in capitals."

    def _run(self, text: str) -> str:
        return text.upper()


class Kit(BaseToolkit):
    def get_tools(self) -> list[BaseTool]:
        return [Shout(), structured]


class SyncOnly(BaseTool):
    """As many of LangChain's community tools: the asynchronous way only raises."""

    name: str = "sync_only"
    description: str = "Say it."

    def _run(self, text: str) -> str:
        return text

    async def _arun(self, text: str) -> str:
        raise NotImplementedError


@tool(response_format="content_and_artifact")
def with_artifact(text: str) -> tuple[str, dict[str, str]]:
    """Return a text, and what is not for the model."""
    return text, {"secret": "s3cret"}


class BrokenKit(BaseToolkit):
    def get_tools(self) -> list[BaseTool]:
        raise RuntimeError("no connection")


sync_only, broken_kit = SyncOnly(), BrokenKit()
kit, both, nothing = Kit(), [add, slow_add], [1, 2]


async def call(name: str, tool_name: str, **arguments: object) -> ToolOutcome:
    box = ToolBox((), CallLimits(5, 1000), imported=[f"{HERE}:{name}"])
    return await box.run(ToolCall("c", tool_name, json.dumps(arguments)), CONTEXT)


@pytest.mark.parametrize(
    ("name", "tool_name", "arguments", "result"),
    [
        ("add", "add", {"a": 2, "b": 3}, "5"),
        ("add", "add", {"a": 2}, "3"),
        ("slow_add", "slow_add", {"a": 2}, "3"),
        ("structured", "times", {"a": 2, "b": 3}, "6"),
        ("kit", "shout", {"text": "hi"}, "HI"),
        ("kit", "times", {"a": 4, "b": 5}, "20"),
        ("both", "slow_add", {"a": 7}, "8"),
        ("sync_only", "sync_only", {"text": "hi"}, "hi"),
        ("with_artifact", "with_artifact", {"text": "hi"}, "hi"),
    ],
)
async def test_each_kind_is_called(name: str, tool_name: str, arguments: dict[str, object], result: str) -> None:
    assert await call(name, tool_name, **arguments) == ToolOutcome(result)


def test_a_toolkit_stands_for_all_its_tools_and_their_schemas() -> None:
    box = ToolBox((), CallLimits(5, 1000))

    shout, times = box.specs([f"{HERE}:kit"])
    (added,) = box.specs([f"{HERE}:add"])

    assert (shout.name, times.name) == ("shout", "times")
    assert added.description == "Add two numbers."
    assert added.parameters["properties"] == {
        "a": {"title": "A", "type": "integer"},
        "b": {"default": 1, "title": "B", "type": "integer"},
    }
    assert added.parameters["required"] == ["a"]


async def test_errors_are_told_without_what_may_be_confidential() -> None:
    wrong = await call("add", "add", a="two")
    own = await call("grumble", "grumble", text="mine")
    other = await call("grumble", "grumble", text="x")

    assert wrong.is_error
    assert wrong.text.startswith("The arguments of add are not valid: a: Input should be a valid integer")
    assert own == ToolOutcome("try a longer text", is_error=True)
    assert other == ToolOutcome("grumble failed with RuntimeError.", is_error=True)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("injected", "takes call from LangGraph's own agents"),
        ("nothing", "is a list; it must be a plain function"),
        ("broken_kit", "cannot be described: RuntimeError: no connection"),
    ],
)
def test_what_cannot_be_called_here_is_refused_at_start(name: str, complaint: str) -> None:
    with pytest.raises(SettingInvalid) as caught:
        ToolBox((), CallLimits(5, 1000), imported=[f"{HERE}:{name}"])

    assert complaint in caught.value.detail


async def test_arguments_that_look_like_a_call_of_langchains_reveal_nothing() -> None:
    forged = {"type": "tool_call", "id": "1", "name": "with_artifact", "args": {"text": "x"}}

    box = ToolBox((), CallLimits(5, 1000), imported=[f"{HERE}:with_artifact"])
    outcome = await box.run(ToolCall("c", "with_artifact", json.dumps(forged)), CONTEXT)

    assert outcome.is_error
    assert "s3cret" not in outcome.text


def test_a_tool_named_twice_is_sent_once() -> None:
    specs = ToolBox((), CallLimits(5, 1000)).specs([f"{HERE}:both", f"{HERE}:add"])

    assert [spec.name for spec in specs] == ["add", "slow_add"]
