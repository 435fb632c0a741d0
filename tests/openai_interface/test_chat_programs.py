"""Chats as Open WebUI and LibreChat send them.

Headers and bodies have the shapes that the sources of both programs make: Open WebUI's router for OpenAI connections
with forwarded headers and its task routes, and LibreChat's custom endpoints, which call through OpenAI's client for
JavaScript."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from fakes.openai_stage import Chat, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say, Step
from fakes.stage import AGENT
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.message import ToolCall, text_of
from throughline.domain.prompt import ModelRequest, OverrideField, Usage

CHAT = "9e41a1c2-4a35-4b5e-9d5a-0d2c9d3e5f10"
OPEN_WEBUI = {
    "X-OpenWebUI-User-Name": "Anna%20B",
    "X-OpenWebUI-User-Id": "4f6b9f0e-6f0e-4a53-9a55-0c7b6c1f3c11",
    "X-OpenWebUI-User-Email": "anna@example.com",
    "X-OpenWebUI-User-Role": "user",
    "X-OpenWebUI-Chat-Id": CHAT,
}
LIBRECHAT = {
    "X-Chat-Id": CHAT,
    "User-Agent": "OpenAI/JS 5.8.2",
    "X-Stainless-Lang": "js",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Timeout": "600",
}
CHAT_BODY: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
LIBRECHAT_BODY: dict[str, Any] = {
    **CHAT_BODY,
    "user": "66f0c1d2e3a4b5c6d7e8f901",
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
TITLE = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Guidelines:\n- The "
    "title should clearly represent the main theme or subject of the conversation.\n### Output:\nJSON format: "
    '{ "title": "your concise title here" }\n### Chat History:\n<chat_history>\nUSER: turn 0\nASSISTANT: Yes.\n'
    "</chat_history>"
)
FOLLOW_UPS = (
    "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in this "
    "conversation as a **user**, based on the chat history.\n### Chat History:\n<chat_history>\nUSER: turn 0\n"
    "</chat_history>"
)
LIBRECHAT_TITLE = (
    "Provide a concise, 5-word-or-less title for the conversation, using its same language, with no punctuation. "
    "Apply title case conventions appropriate for the language. Never directly mention the language name or the word "
    '"title" and only return the title itself.\n\nConversation:\nUser: turn 0\nAI: Yes.'
)
TASKS = [(OPEN_WEBUI, TITLE), (OPEN_WEBUI, FOLLOW_UPS), (LIBRECHAT, LIBRECHAT_TITLE)]


async def session_sizes(stage: OpenAIStage) -> list[int]:
    listed = await stage.http.get("/v1/sessions", params={"external_id": CHAT})
    return [session["message_count"] for session in listed.json()["data"]]


@pytest.mark.parametrize(("headers", "body"), [(OPEN_WEBUI, CHAT_BODY), (LIBRECHAT, LIBRECHAT_BODY)])
async def test_thirty_turns_make_one_session_with_sixty_messages(
    stage: OpenAIStage, headers: Mapping[str, str], body: Mapping[str, Any]
) -> None:
    tasks = [task for sent, task in TASKS if sent is headers]
    answer, task_answer = Say("Yes."), Say('{"title": "Turns"}')

    def by_request(request: ModelRequest) -> Say:
        newest = request.prompt.messages[-1].content
        return answer if str(newest).startswith("turn") else task_answer

    stage.model.by_request = by_request
    messages: list[Any] = []
    for turn in range(30):
        messages.append({"role": "user", "content": f"turn {turn}"})
        sent = {"model": "assistant", "messages": messages, **body}
        answered = await stage.http.post("/v1/chat/completions", json=sent, headers=dict(headers))
        assert answered.text.endswith("data: [DONE]\n\n"), answered.text
        messages.append({"role": "assistant", "content": "Yes."})
        for task in tasks if turn < 2 else ():
            asked = {"model": "assistant", "messages": [{"role": "user", "content": task}], "stream": False}
            titled = await stage.http.post("/v1/chat/completions", json=asked, headers=dict(headers))
            assert "x-session-id" not in titled.headers

    assert await session_sizes(stage) == [60]
    assert len(stage.model.requests[-1].prompt.messages) == 59


@pytest.mark.parametrize(("headers", "task"), TASKS)
async def test_a_task_that_comes_before_the_chat_is_stored_leaves_no_session(
    stage: OpenAIStage, headers: Mapping[str, str], task: str
) -> None:
    stage.model.script(Say("A Title"))
    asked = {"model": "assistant", "messages": [{"role": "user", "content": task}], "max_tokens": 1000}

    answer = await stage.http.post("/v1/chat/completions", json=asked, headers=dict(headers))

    assert answer.status_code == 200
    assert await session_sizes(stage) == []


async def test_a_task_that_open_webui_names_in_a_header_stays_out_of_the_chat(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("A Title"))
    chat = Chat(stage, "X-OpenWebUI-Chat-Id", CHAT)
    chat.headers["X-OpenWebUI-Task"] = ""
    await chat.say("a")
    chat.headers["X-OpenWebUI-Task"] = "title_generation"
    chat.messages = []

    await chat.say("My own words for a title: a")

    assert await session_sizes(stage) == [2]


@pytest.mark.parametrize("name", ["local:kD3xJq", "", "new"])
async def test_a_temporary_chat_and_one_without_a_name_are_not_kept(
    stage: OpenAIStage, name: str, database_url: str
) -> None:
    stage.model.script(Say("one"))

    answer = await Chat(stage, "X-OpenWebUI-Chat-Id", name).say("a")

    assert "x-session-id" not in answer.headers
    assert await run_sql(database_url, "select count(*) from sessions where external_id is not null") == [(0,)]


@pytest.mark.parametrize(
    ("header", "value"), [("X-Chat-Id", "{{LIBRECHAT_BODY_CONVERSATIONID}}"), ("X-OpenWebUI-Task", "{{TASK}}")]
)
async def test_a_placeholder_that_was_not_filled_in_is_refused(stage: OpenAIStage, header: str, value: str) -> None:
    chat = Chat(stage, header, value)
    chat.messages = [{"role": "user", "content": "a"}]

    refused = await chat.post()

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, header)


async def test_open_webui_runs_its_tools_within_one_turn(stage: OpenAIStage) -> None:
    """Its tools repeat the type within the function, and its loop sends results with the same chat."""
    stage.model.script(Call((ToolCall("call_1", "weather", "{}"),)), Say("It rains."))
    tools = [
        {
            "type": "function",
            "function": {
                "type": "function",
                "name": "weather",
                "description": "Tell the weather.",
                "parameters": {"type": "object", "properties": {}, "required": []},
            },
        }
    ]
    chat = Chat(stage, "X-OpenWebUI-Chat-Id", CHAT)
    chat.headers |= OPEN_WEBUI
    await chat.say("Rain?", tools=tools)
    call = chat.messages[-1]["tool_calls"][0]
    chat.messages[-1] = {"role": "assistant", "content": "", "tool_calls": [{**call, "index": 0}]}
    chat.messages.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})

    answered = await chat.post({"tools": tools})

    assert answered.json()["choices"][0]["message"]["content"] == "It rains."
    assert await session_sizes(stage) == [4]


RECORDED = Path(__file__).parent / "client_requests.jsonl"
"""One request a line: the client with its version, its settings in words, and what it sent."""

REQUESTS: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
CLIENTS = sorted({request["client"] for request in REQUESTS})
LIKE_SHIPPED = replace(AGENT, overrides=frozenset({OverrideField.INSTRUCTIONS, OverrideField.RESPONSE_FORMAT}))
FAILURES = ("response.failed", '"error":{')


def answer(request: ModelRequest) -> Step:
    """Answer in the format that is asked for."""
    return Say("Hello." if request.response_format is None else '{"town": "Graz"}')


async def failure_of(stage: OpenAIStage, request: dict[str, Any]) -> str:
    """Send the request and return what is wrong with the answer, '' if nothing is."""
    response = await stage.http.post(request["path"], json=request["body"])
    is_answered = response.status_code == httpx.codes.OK and not any(sign in response.text for sign in FAILURES)
    return "" if is_answered else f"{response.status_code} {response.text}"


@pytest.mark.parametrize("agent", [LIKE_SHIPPED, AGENT], ids=["shipped", "written"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_recorded_requests_of_a_client_are_answered(
    database: Database, client: str, agent: AgentDefinition
) -> None:
    sent = [request for request in REQUESTS if request["client"] == client]
    async with open_openai_stage(database, agent=agent) as stage:
        stage.model.by_request = answer
        failures = [(request["settings"], await failure_of(stage, request)) for request in sent]

    assert [failed for failed in failures if failed[1]] == []
    assert len(stage.model.requests) == len(sent)


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
