"""The double behind the real OpenAI client of LangChain: answers, streams, tool calls and every failure."""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from langchain_core.messages import AIMessageChunk, BaseMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptedCall, ScriptStep, Verdict
from fakes.waiting import HANG_SECONDS, until
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT

CALL = ScriptedCall("call_1", "calculator", '{"expression": "1 + 1"}')


class Client:
    """Makes models that talk to the double, over one connection pool that is closed after the test."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._url, self._http = url, http

    def model(self, *, streaming: bool = True) -> ChatOpenAI:
        return ChatOpenAI(
            model="double-8k-cl100k",
            base_url=self._url,
            api_key=SecretStr("key"),
            max_retries=0,
            stream_usage=streaming,
            http_async_client=self._http,
        )

    async def stream(self, text: str = "hello") -> AIMessageChunk:
        whole: BaseMessageChunk | None = None
        async for chunk in self.model().astream([HumanMessage(text)]):
            whole = chunk if whole is None else whole + chunk
        assert isinstance(whole, AIMessageChunk)
        return whole


@pytest.fixture
async def client(provider_double: ProviderDouble) -> AsyncIterator[Client]:
    async with httpx.AsyncClient() as http:
        yield Client(provider_double.url, http)


async def test_a_scripted_text_arrives_whole_streamed_and_not(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="Grüße, 世界!"), ScriptStep(text="Again."))

    streamed = await client.stream()
    collected = await client.model(streaming=False).ainvoke([HumanMessage("hello")])

    assert (streamed.content, collected.content) == ("Grüße, 世界!", "Again.")
    assert streamed.response_metadata["finish_reason"] == "stop"
    assert streamed.usage_metadata is not None
    assert streamed.usage_metadata["input_tokens"] == provider_double.requests[0].prompt_tokens


async def test_scripted_tool_calls_arrive_whole(provider_double: ProviderDouble, client: Client) -> None:
    second = ScriptedCall("call_2", "current_time", "{}")
    provider_double.script(ScriptStep(text="Let me see.", calls=(CALL, second)))

    answer = await client.stream()

    assert [(call["id"], call["name"], call["args"]) for call in answer.tool_calls] == [
        ("call_1", "calculator", {"expression": "1 + 1"}),
        ("call_2", "current_time", {}),
    ]
    assert answer.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Failure.RATE_LIMITED, 429, "rate_limit_exceeded"),
        (Failure.QUOTA, 429, "insufficient_quota"),
        (Failure.SERVER_ERROR, 500, None),
        (Failure.OVERLOADED, 529, None),
        (Failure.CONTEXT_LENGTH, 400, "context_length_exceeded"),
    ],
)
async def test_failures_with_a_status_have_the_real_status_and_code(
    provider_double: ProviderDouble, client: Client, failure: Failure, status: int, code: str | None
) -> None:
    provider_double.script(ScriptStep(failure=failure))

    with pytest.raises(openai.APIStatusError) as caught:
        await client.stream()

    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert [record.verdict for record in provider_double.requests] == [Verdict.FAILED]


async def test_a_rate_limit_says_when_to_come_back(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(failure=Failure.RATE_LIMITED, retry_after="7"))

    with pytest.raises(openai.RateLimitError) as caught:
        await client.stream()

    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Failure.HANG, Failure.HANG_IN_ANSWER])
async def test_a_hanging_provider_runs_into_the_clients_timeout(
    provider_double: ProviderDouble, client: Client, failure: Failure
) -> None:
    provider_double.script(ScriptStep(text="never all of it", failure=failure))

    with pytest.raises((openai.APITimeoutError, httpx.ReadTimeout)):
        await client.model().ainvoke([HumanMessage("hello")], timeout=2.0)


async def test_a_lost_connection_breaks_the_stream(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="half of this", failure=Failure.RESET))

    with pytest.raises((openai.APIConnectionError, httpx.RemoteProtocolError)):
        await client.stream()


async def test_a_stream_cut_cleanly_has_no_finish_reason(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="half of this", failure=Failure.CLEAN_CUT))

    answer = await client.stream()

    assert "finish_reason" not in answer.response_metadata
    assert len(answer.content) < len("half of this")


async def test_an_error_inside_the_stream_is_an_error(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="half of this", failure=Failure.ERROR_IN_STREAM))

    with pytest.raises(openai.APIError):
        await client.stream()


async def test_an_empty_answer_is_empty_and_finished(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="not shown", failure=Failure.EMPTY))

    answer = await client.stream()

    assert (answer.content, answer.tool_calls) == ("", [])
    assert answer.response_metadata["finish_reason"] == "stop"


async def test_bad_tool_json_arrives_as_an_invalid_call(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(calls=(CALL,), failure=Failure.BAD_TOOL_JSON))

    answer = await client.model(streaming=False).ainvoke([HumanMessage("hello")])

    assert answer.tool_calls == []
    assert [call["args"] for call in answer.invalid_tool_calls] == ['{"expression": "1 + 1"']


def test_html_comes_with_status_200(provider_double: ProviderDouble) -> None:
    provider_double.script(ScriptStep(failure=Failure.HTML))
    body = {"model": "double-8k-cl100k", "messages": [{"role": "user", "content": "hello"}]}

    response = httpx.post(
        f"{provider_double.url}/chat/completions",
        timeout=HANG_SECONDS,
        json=body,
        headers={"authorization": "Bearer key"},
    )

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")


async def test_a_trickle_arrives_piece_by_piece(provider_double: ProviderDouble, client: Client) -> None:
    provider_double.script(ScriptStep(text="one two three four", pieces=4, delay_seconds=0.01))

    pieces = [chunk.content async for chunk in client.model().astream([HumanMessage("hello")])]

    assert len([piece for piece in pieces if piece]) == 4


async def test_without_a_script_the_same_request_gets_the_same_answer(client: Client) -> None:
    first, second = await client.stream("same"), await client.stream("same")

    assert first.content == second.content == "Answer 1 to: same"


async def test_a_summariser_gets_a_bounded_summary_made_of_the_record(
    provider_double: ProviderDouble, client: Client
) -> None:
    record = "\n".join(f"[#{number} user] fact {number} of many that were told" for number in range(1, 200))
    messages = [SystemMessage(SUMMARISER_SYSTEM_PROMPT), HumanMessage(record)]

    answer = await client.model().ainvoke(messages, max_tokens=300)

    lines = str(answer.content).splitlines()[1:]
    assert lines
    assert all(re.fullmatch(r"- user: fact (\d+) of many that were told \[#\1\]", line) for line in lines)
    [request] = provider_double.requests
    assert request.is_summary
    assert request.positions == tuple(range(1, 200))
    assert answer.response_metadata["finish_reason"] == "stop"


async def test_each_conversation_has_its_own_line_and_summarisers_have_theirs(
    provider_double: ProviderDouble,
    client: Client,
) -> None:
    provider_double.script(ScriptStep(text="for a"), line="a")
    provider_double.script(ScriptStep(text="for anybody"))
    provider_double.script(ScriptStep(text="a summary"), line=SUMMARISER)
    model = client.model()

    texts = [
        (await model.ainvoke([SystemMessage(system), HumanMessage("hello")])).content
        for system in ("You are b. [script:b]", "You are a. [script:a]", SUMMARISER_SYSTEM_PROMPT)
    ]

    assert texts == ["for anybody", "for a", "a summary"]
    assert [record.conversation for record in provider_double.requests] == ["b", "a", "summariser"]


async def test_a_growing_prompt_keeps_all_bytes_of_the_one_before(
    provider_double: ProviderDouble, client: Client
) -> None:
    model = client.model()
    system = SystemMessage("You are a. [script:a]")

    await model.ainvoke([system, HumanMessage("one")])
    await model.ainvoke([system, HumanMessage("one"), HumanMessage("two")])
    await model.ainvoke([system, HumanMessage("other")])

    grown, changed = provider_double.requests[1:]
    assert grown.shared_bytes == grown.previous_bytes > 0
    assert 0 < changed.shared_bytes < changed.previous_bytes


async def test_requests_of_one_conversation_that_overlap_are_noticed(
    provider_double: ProviderDouble, client: Client
) -> None:
    provider_double.script(ScriptStep(delay_seconds=HANG_SECONDS), ScriptStep(), line="a")
    messages = [SystemMessage("You are a. [script:a]"), HumanMessage("one")]

    first = asyncio.create_task(client.model().ainvoke(messages))
    await until(lambda: bool(provider_double.requests))
    await client.model().ainvoke(messages)
    first.cancel()

    assert sorted(record.overlapped for record in provider_double.requests) == [False, True]


def test_the_services_models_are_listed(provider_double: ProviderDouble) -> None:
    listed = httpx.get(f"{provider_double.url}/models", timeout=HANG_SECONDS).json()["data"]

    assert "double-128k-bytes2" in [model["id"] for model in listed]
