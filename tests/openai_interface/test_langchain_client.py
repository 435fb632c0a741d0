"""LangChain's ChatOpenAI in front of the chat completions and the responses."""

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from throughline.db.database import Database
from throughline.domain.message import ToolCall, text_of
from throughline.domain.prompt import Usage


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage:
        yield stage


def client(stage: OpenAIStage) -> ChatOpenAI:
    return ChatOpenAI(
        model="assistant",
        base_url=str(stage.client.base_url),
        api_key=SecretStr("none"),
        max_retries=0,
        temperature=0.2,
    )


@tool
def weather(town: str) -> str:
    """Tell the weather of a town."""
    return f"rain in {town}"


class Town(BaseModel):
    """A town."""

    name: str


async def test_answers_are_invoked_and_streamed(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello there.", usage=Usage(input_tokens=9, output_tokens=3)), Say("Hello again."))

    answer = await client(stage).ainvoke([SystemMessage("Be brief."), HumanMessage("hi")])
    pieces = [piece async for piece in client(stage).astream("hi")]

    assert (answer.content, answer.usage_metadata and answer.usage_metadata["total_tokens"]) == ("Hello there.", 12)
    whole = sum(pieces[1:], pieces[0])
    assert isinstance(whole, AIMessageChunk)
    assert whole.content == "Hello again."


async def test_bound_tools_are_called_and_answered(stage: OpenAIStage) -> None:
    stage.model.script(Call((ToolCall("call_1", "weather", '{"town": "Graz"}'),)), Say("It rains."))
    bound = client(stage).bind_tools([weather])
    messages: list[BaseMessage] = [HumanMessage("Rain?")]
    asked = await bound.ainvoke(messages)
    (call,) = asked.tool_calls
    messages += [asked, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])]

    answered = await bound.ainvoke(messages)

    assert (call["name"], call["args"]) == ("weather", {"town": "Graz"})
    assert answered.content == "It rains."
    assert stage.model.requests[1].prompt.messages[-1].content == "rain in Graz"


@pytest.mark.parametrize("version", ["v0", "responses/v1", "v1"])
async def test_streamed_texts_and_calls_of_a_response_are_sent_back_with_results(
    stage: OpenAIStage, version: str
) -> None:
    called = ToolCall("call_1", "weather", '{"town": "Graz"}')
    stage.model.script(Call((called,), text="I look.", is_streamed=True), Say("It rains."))
    model = client(stage).model_copy(update={"use_responses_api": True, "output_version": version})
    bound = model.bind_tools([weather])
    pieces = [piece async for piece in bound.astream("Rain?")]
    asked = sum(pieces[1:], pieces[0])

    answered = await bound.ainvoke([HumanMessage("Rain?"), asked, ToolMessage("rain", tool_call_id="call_1")])

    assert answered.text == "It rains."
    question, step, result = stage.model.requests[1].prompt.messages
    assert (question.content, text_of(step.content).strip(), result.content) == ("Rain?", "I look.", "rain")
    assert [call.id for call in step.tool_calls] == ["call_1"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_structured_output_is_an_object(
    stage: OpenAIStage, method: Literal["json_schema", "function_calling"]
) -> None:
    called = Call((ToolCall("call_1", "Town", '{"name": "Graz"}'),))
    stage.model.script(called if method == "function_calling" else Say('{"name": "Graz"}'))

    structured = client(stage).with_structured_output(Town, method=method)

    assert await structured.ainvoke("A town?") == Town(name="Graz")
