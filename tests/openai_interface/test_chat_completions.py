"""Chat completions through OpenAI's own client, which checks every answer strictly against its types."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import OneTool
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import Usage

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
HI = [{"role": "user", "content": "hi"}]


async def create(stage: OpenAIStage, **body: Any) -> ChatCompletion:  # noqa: ANN401  # as the client's overloads take them
    """Ask the one agent for a completion."""
    completion = await stage.client.chat.completions.create(**{"model": "assistant", "messages": HI, **body})
    assert isinstance(completion, ChatCompletion)
    return completion


def text_of(completion: ChatCompletion) -> str | None:
    return completion.choices[0].message.content


def calls_of(completion: ChatCompletion) -> list[ChatCompletionMessageFunctionToolCall]:
    calls = completion.choices[0].message.tool_calls or []
    return [call for call in calls if isinstance(call, ChatCompletionMessageFunctionToolCall)]


async def until_cancelled(database_url: str, *others: str) -> None:
    """Wait until the first run is cancelled; `others` are the statuses of later ones."""
    async with asyncio.timeout(HANG_SECONDS):
        while await run_sql(database_url, "select status from runs order by seq") != [
            ("cancelled",),
            *((status,) for status in others),
        ]:
            await asyncio.sleep(0.02)


async def test_a_completion_has_the_answer_and_its_usage(stage: OpenAIStage) -> None:
    usage = Usage(input_tokens=9, output_tokens=3, cached_tokens=4, reasoning_tokens=2)
    stage.model.script(Say("Hello there.", usage=usage))

    completion = await create(stage, metadata={"a": "b"}, user="u-1")

    assert (text_of(completion), completion.choices[0].finish_reason) == ("Hello there.", "stop")
    assert (completion.model, completion.id[:9]) == ("assistant", "chatcmpl-")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.completion_tokens_details is not None
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (9, 12)
    assert completion.usage.prompt_tokens_details.cached_tokens == 4
    assert completion.usage.completion_tokens_details.reasoning_tokens == 2


async def test_a_cut_answer_says_so(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello th", finish_reason="length"))

    completion = await create(stage, max_tokens=3, max_completion_tokens=3)

    assert completion.choices[0].finish_reason == "length"
    assert stage.model.requests[0].max_output_tokens == 3


async def test_history_instructions_and_images_reach_the_model_and_nothing_is_kept(stage: OpenAIStage) -> None:
    stage.model.script(Say("Alice."))
    image = "data:image/png;base64,iVBORw0KGgo="

    await create(
        stage,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "developer", "content": [{"type": "text", "text": "Answer in English."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "My name?"},
                    {"type": "image_url", "image_url": {"url": image, "detail": "low"}},
                ],
            },
        ],
        temperature=0.5,
    )

    (request,) = stage.model.requests
    assert request.prompt.system.endswith("Be brief.\n\nAnswer in English.")
    said = [message.content for message in request.prompt.messages]
    assert said[:2] == ["My name is Alice.", "Hello!"]
    assert [type(block).__name__ for block in said[2]] == ["TextBlock", "ImageBlock"]
    assert (await stage.http.get("/v1/sessions")).json()["data"] == [
        session for session in (await stage.http.get("/v1/sessions")).json()["data"] if session["message_count"] == 0
    ]


async def test_tools_of_the_client_are_called_and_their_results_brought_again(
    stage: OpenAIStage, database_url: str
) -> None:
    stage.model.script(Call((ASKS_WEATHER,), text="I look."), Say("It rains."))
    messages: list[Any] = [{"role": "user", "content": "Rain?"}]
    asked = await create(stage, messages=messages, tools=[WEATHER])
    (call,) = calls_of(asked)
    messages += [asked.choices[0].message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"}]

    answered = await create(stage, messages=messages, tools=[WEATHER])

    assert (text_of(asked), asked.choices[0].finish_reason) == ("I look.", "tool_calls")
    assert (call.function.name, call.function.arguments) == ("weather", '{"town": "Graz"}')
    assert (text_of(answered), answered.choices[0].finish_reason) == ("It rains.", "stop")
    roles = [message.role for message in stage.model.requests[1].prompt.messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL]
    await until_cancelled(database_url, "succeeded")


async def test_tool_choices_reach_the_model(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("No."))

    await create(stage, tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "weather"}})
    await create(stage, tools=[WEATHER], tool_choice="none")

    assert [request.tool_choice for request in stage.model.requests] == ["weather", None]
    assert [request.may_call_tools for request in stage.model.requests] == [True, False]


async def test_tools_of_the_service_are_not_shown_and_the_texts_around_them_are(stage: OpenAIStage) -> None:
    calculates = ToolCall("c", "calculator", '{"expression": "6*7"}')
    stage.model.script(Call((calculates,), text="I calculate."), Say("42"))

    completion = await create(stage)

    assert (text_of(completion), calls_of(completion)) == ("I calculate.\n\n42", [])


class Town(BaseModel):
    """A town."""

    name: str


async def test_a_structured_output_is_parsed_and_only_the_last_text_counts(stage: OpenAIStage) -> None:
    calculates = ToolCall("c", "calculator", '{"expression": "6*7"}')
    stage.model.script(Call((calculates,), text="I calculate."), Say('{"name": "Graz"}'))

    parsed = await stage.client.chat.completions.parse(
        model="assistant", messages=[{"role": "user", "content": "A town?"}], response_format=Town
    )

    assert parsed.choices[0].message.parsed == Town(name="Graz")
    wanted = stage.model.requests[0].response_format
    assert wanted is not None
    assert (wanted.name, wanted.strict) == ("Town", True)


async def test_a_json_object_may_be_asked_for(stage: OpenAIStage) -> None:
    stage.model.script(Say('{"a": 1}'))

    assert text_of(await create(stage, response_format={"type": "json_object"})) == '{"a": 1}'


async def test_a_question_of_the_model_is_text_that_the_user_may_answer(database: Database, database_url: str) -> None:
    asks = ToolCall("q", "ask_user", '{"question": "Which town?", "options": ["Graz", "Bonn"]}')
    async with open_openai_stage(database, agent=replace(OPEN_AGENT, tools=("ask_user",))) as stage:
        stage.model.script(Call((asks,)))

        completion = await create(stage)

        await until_cancelled(database_url)

    assert (text_of(completion), completion.choices[0].finish_reason) == ("Which town?\n- Graz\n- Bonn", "stop")


async def test_an_approval_that_nobody_can_give_is_refused(database: Database, database_url: str) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    careful = replace(OPEN_AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
    async with open_openai_stage(database, agent=careful, tools=tool) as stage:
        stage.model.script(Call((ToolCall("c", "delete", "{}"),)))
        with pytest.raises(openai.ConflictError, match="approval to call delete") as raised:
            await create(stage)

        await until_cancelled(database_url)

    assert (raised.value.code, tool.keys) == ("approval_required", [])


async def test_a_failed_turn_raises_its_error(stage: OpenAIStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused.")))

    with pytest.raises(openai.InternalServerError, match="The provider refused") as raised:
        await create(stage)

    assert raised.value.response.headers["x-should-retry"] == "false"


async def test_a_stored_completion_keeps_its_session(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))

    raw = await stage.client.chat.completions.with_raw_response.create(
        model="assistant", messages=[{"role": "user", "content": "hi"}], store=True
    )

    session = raw.headers["x-session-id"]
    assert [message.content for message in await messages_of(stage, session)] == ["hi", "Hello."]
    assert raw.headers["x-run-id"].replace("-", "") in raw.parse().id


async def messages_of(stage: OpenAIStage, session: str) -> list[Any]:
    class Shown(BaseModel):
        content: Any
        role: str

    data = (await stage.http.get(f"/v1/sessions/{session}/messages", params={"limit": 200})).json()["data"]
    return [Shown(**message) for message in data]


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({"n": 2}, "n", "This service does not have it: a turn has one answer"),
        ({"top_p": 1.5}, "top_p", "Must be 1.0 or less"),
        ({"stop": [3]}, "stop", "must be text, or a list of texts"),
        ({"logprobs": True}, "logprobs", "are not read"),
        ({"functions": [{"name": "f"}]}, "functions", "have taken its place"),
        ({"modalities": ["text", "audio"]}, "modalities", "answers are text"),
        ({"moderation": {"model": "x"}}, "moderation", "nothing is moderated"),
        ({"web_search_options": {}}, "web_search_options", "a tool of its own"),
        ({"unknown": 1}, "unknown", "This field does not exist"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens", "differ"),
        ({"messages": []}, "messages", "1 items or more"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages", "no message of a user"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages", "no message of a user"),
        ({"messages": [*HI, {"role": "assistant", "content": "Hel"}]}, "messages.1", "cannot be continued"),
        ({"messages": [*HI, {"role": "tool", "content": "x"}]}, "messages.1.tool_call_id", "needs the"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content.0", "text"),
        ({"tools": [{"type": "custom"}]}, "tools.0.type", "Must be 'function'"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "more than once"),
        ({"metadata": {"session_id": "{{CHAT_ID}}"}}, "metadata.session_id", "a placeholder"),
        ({"metadata": {"session_id": "x" * 256}}, "metadata.session_id", "1 to 255 characters"),
    ],
)
async def test_what_this_service_does_not_have_is_refused_by_name(
    stage: OpenAIStage, body: dict[str, object], param: str, told: str, database_url: str
) -> None:
    answer = await stage.http.post("/v1/chat/completions", json={"model": "assistant", "messages": HI, **body})

    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert told in error["message"]
    assert await run_sql(database_url, "select count(*) from runs") == [(0,)]


async def test_values_that_mean_nothing_may_be_sent(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello."))

    completion = await create(
        stage,
        n=1,
        top_p=1,
        presence_penalty=0,
        frequency_penalty=0.0,
        logit_bias={},
        stop=None,
        seed=None,
        logprobs=False,
        modalities=["text"],
        parallel_tool_calls=True,
        service_tier="auto",
        verbosity="medium",
        response_format={"type": "text"},
    )

    assert text_of(completion) == "Hello."


async def test_errors_are_the_exceptions_of_the_client(stage: OpenAIStage) -> None:
    with pytest.raises(openai.NotFoundError, match="The models are the agents: assistant"):
        await create(stage, model="gpt-4o")
    with pytest.raises(openai.NotFoundError):
        await create(stage, metadata={"session_id": "00000000-0000-4000-8000-000000000000"})


PATH = "/v1/chat/completions"
AT_ONCE = 6
NAMES = [{"X-Chat-Id": "mine"}, {"X-Session-Id": "mine"}]


@pytest.fixture
async def stage_twice(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database) as stage_twice:
        stage_twice.model.by_request = lambda _request: Say("Yes.")
        yield stage_twice


def body_of(texts: Sequence[str]) -> dict[str, object]:
    """Return a whole chat that ends with the last of `texts`."""
    earlier = [
        message
        for text in texts[:-1]
        for message in ({"role": "user", "content": text}, {"role": "assistant", "content": "Yes."})
    ]
    return {"model": "assistant", "messages": [*earlier, {"role": "user", "content": texts[-1]}]}


async def say(stage_twice: OpenAIStage, texts: Sequence[str], headers: dict[str, str]) -> httpx.Response:
    """Send a whole chat that ends with the last of `texts`."""
    return await stage_twice.http.post(PATH, json=body_of(texts), headers=headers)


async def say_at_once(
    stage_twice: OpenAIStage, texts: Sequence[str], headers: dict[str, str]
) -> set[tuple[int, str, str]]:
    """Send the same several times together, and return what differs among status, run and session of the answers.

    The turn ends when all answers have begun: a request that came after its end would ask for another answer.
    """
    gate = asyncio.Event()
    stage_twice.model.by_request = lambda _request: Say("Yes indeed.", gate=gate)
    body = {**body_of(texts), "stream": True}
    async with AsyncExitStack() as stack:
        answers = await asyncio.gather(
            *(
                stack.enter_async_context(stage_twice.http.stream("POST", PATH, json=body, headers=headers))
                for _ in range(AT_ONCE)
            )
        )
        gate.set()
        for answer in answers:
            await answer.aread()
    return {
        (answer.status_code, answer.headers.get("x-run-id", answer.text), answer.headers.get("x-session-id", ""))
        for answer in answers
    }


@pytest.mark.parametrize("headers", NAMES)
async def test_the_first_message_of_a_chat_begins_one_turn(
    stage_twice: OpenAIStage, headers: dict[str, str], database_url: str
) -> None:
    ((status, _, _),) = await say_at_once(stage_twice, ["one"], headers)

    assert status == httpx.codes.OK
    assert await run_sql(database_url, "select count(*) from runs") == [(1,)]


@pytest.mark.parametrize("headers", NAMES)
async def test_a_further_message_begins_one_turn(
    stage_twice: OpenAIStage, headers: dict[str, str], database_url: str
) -> None:
    first = await say(stage_twice, ["one"], headers)

    ((status, _, session),) = await say_at_once(stage_twice, ["one", "two"], headers)

    assert (status, session) == (httpx.codes.OK, first.headers["x-session-id"])
    assert await run_sql(database_url, "select count(*) from runs") == [(2,)]


async def test_a_branch_is_begun_once(stage_twice: OpenAIStage, database_url: str) -> None:
    first = await say(stage_twice, ["one"], NAMES[0])

    ((status, _, session),) = await say_at_once(stage_twice, ["other", "two"], NAMES[0])

    assert status == httpx.codes.OK
    assert session != first.headers["x-session-id"]
    assert await run_sql(database_url, "select count(*) from runs") == [(2,)]


async def test_different_messages_at_the_same_moment_are_turns_of_their_own(stage_twice: OpenAIStage) -> None:
    await say(stage_twice, ["one"], NAMES[1])

    answers = await asyncio.gather(*(say(stage_twice, [text], NAMES[1]) for text in ("two", "three")))

    assert len({answer.headers["x-run-id"] for answer in answers}) == len(answers)
