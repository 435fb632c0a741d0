"""Requests that choose among their tools, through OpenAI's own client: what the model is sent, and what is refused."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from fakes.stage import LEARNED_KEY
from openai_interface import test_chat_completions as chats
from openai_interface import test_responses as responses
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ANY_TOOL, Usage

CALCULATES = Call((ToolCall("c", "calculator", '{"expression": "6*7"}'),))
LOOKS_UP = {"type": "function", "name": "look_up"}
TOOLS = [responses.WEATHER, LOOKS_UP]
CHAT_TOOLS = [chats.WEATHER, {"type": "function", "function": {"name": "look_up"}}]
ALL = {"calculator", "weather", "look_up"}


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


def allowed(mode: str, *names: str) -> dict[str, Any]:
    """Return the choice in the form of a response's request."""
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name} for name in names]}


def allowed_in_chat(mode: str, *names: str) -> dict[str, Any]:
    """Return the choice in the form of a chat completion's request."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def sent(stage: OpenAIStage) -> list[tuple[set[str], str | None]]:
    """Return the names of the tools, and the choice, with which the model was called each time."""
    return [({tool.name for tool in request.tools}, request.tool_choice) for request in stage.model.requests]


async def test_the_first_call_of_a_response_is_sent_only_the_allowed_tools(stage: OpenAIStage) -> None:
    stage.model.script(CALCULATES, Say("42"))
    choice = allowed("auto", "calculator", "weather")

    response = await responses.create(stage, model="assistant", input="6*7?", tools=TOOLS, tool_choice=choice)

    assert sent(stage) == [({"calculator", "weather"}, None), (ALL, None)]
    assert response.output_text == "42"
    assert response.model_dump()["tool_choice"] == choice


async def test_the_first_call_of_a_chat_is_sent_only_the_allowed_tools(stage: OpenAIStage) -> None:
    stage.model.script(CALCULATES, Say("42"))

    completion = await chats.create(stage, tools=CHAT_TOOLS, tool_choice=allowed_in_chat("auto", "calculator"))

    assert sent(stage) == [({"calculator"}, None), (ALL, None)]
    assert chats.text_of(completion) == "42"


async def test_one_of_the_allowed_tools_may_be_demanded_once(stage: OpenAIStage) -> None:
    stage.model.script(CALCULATES, Say("42"), CALCULATES, Say("42"))
    choice = allowed("required", "look_up", "calculator")

    response = await responses.create(stage, model="assistant", input="6*7?", tools=TOOLS, tool_choice=choice)
    await chats.create(stage, tools=CHAT_TOOLS, tool_choice=allowed_in_chat("required", "look_up", "calculator"))

    assert sent(stage) == [({"look_up", "calculator"}, ANY_TOOL), (ALL, None)] * 2
    assert response.model_dump()["tool_choice"] == choice


@pytest.mark.parametrize(("name", "teaches"), [("weather", False), (None, True)])
async def test_a_call_that_is_sent_some_tools_teaches_nothing_of_tokens(
    stage: OpenAIStage, name: str | None, *, teaches: bool
) -> None:
    stage.model.script(Say("Hello.", usage=Usage(1_000, 1)))
    choice = "auto" if name is None else allowed("auto", name)

    await responses.create(stage, model="assistant", input="hi", tools=TOOLS, tool_choice=choice)

    learned = await stage.turns.dependencies.calibrations.load(LEARNED_KEY)
    assert (learned is not None) is teaches


@pytest.mark.parametrize("name", ["unknown", "required"])
async def test_an_allowed_tool_that_nobody_has_is_refused_by_name(stage: OpenAIStage, name: str) -> None:
    unknown = f"`tool_choice` names the tool '{name}'"

    with pytest.raises(openai.BadRequestError, match=unknown) as of_response:
        await responses.create(
            stage, model="assistant", input="hi", tools=TOOLS, tool_choice=allowed("auto", "weather", name)
        )
    with pytest.raises(openai.BadRequestError, match=unknown) as of_chat:
        await chats.create(stage, tools=CHAT_TOOLS, tool_choice=allowed_in_chat("auto", "weather", name))

    assert (of_response.value.param, of_chat.value.param) == ("tool_choice", "tool_choice")
    assert stage.model.requests == []


async def test_a_single_chosen_tool_that_nobody_has_is_refused_by_name(stage: OpenAIStage) -> None:
    choice = {"type": "function", "function": {"name": "unknown"}}

    with pytest.raises(openai.BadRequestError, match="the tool 'unknown', which neither the request nor the agent has"):
        await chats.create(stage, tools=CHAT_TOOLS, tool_choice=choice)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({**allowed("auto"), "tools": [{"type": "mcp", "server_label": "docs"}]}, "tools.0.type"),
        (allowed("auto"), "tools"),
        (allowed("none", "weather"), "mode"),
        ({"type": "web_search"}, "type"),
    ],
)
async def test_a_choice_of_other_kinds_is_refused(stage: OpenAIStage, choice: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await responses.create(stage, model="assistant", input="hi", tools=TOOLS, tool_choice=choice)

    assert refused.value.param == f"tool_choice.{param}"
    assert stage.model.requests == []
