"""Both services of the benchmark can run with a model in their own process that answers as the provider double does."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage

from benchmarks import waiting_runs
from benchmarks.dialects import DIALECTS
from benchmarks.instant_model import InstantModel
from benchmarks.processes import run_postgres
from benchmarks.throughput import run_both
from benchmarks.throughput_load import QUESTION, press
from fakes.provider_double.answers import echo
from fakes.provider_double.script import ScriptStep
from fakes.provider_double.wire import Completion, completion_events

PROMPT = [SystemMessage("You are a helpful assistant."), HumanMessage(QUESTION.format(number=3))]


async def whole(chunks: AsyncIterator[AIMessage]) -> AIMessageChunk:
    """Return the message that is streamed."""
    first, *others = [chunk async for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    return sum(others, first)


async def test_the_instant_model_says_what_the_double_says_in_as_many_chunks() -> None:
    asked = [{"role": "system", "content": PROMPT[0].text}, {"role": "user", "content": PROMPT[1].text}]
    answer = Completion("1", "double", echo(asked), (), "stop", {"total_tokens": 1})
    events = completion_events(answer, ScriptStep().pieces, includes_usage=True)

    chunks = [chunk async for chunk in InstantModel()._astream(PROMPT)]  # noqa: SLF001  # the wire's chunks: LangChain adds one at the end

    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert len(chunks) == len(events) - 1, "all but the mark that ends the stream"


async def test_the_instant_model_reports_its_usage_and_why_it_stopped() -> None:
    answer = await whole(InstantModel().astream(PROMPT))

    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] > 20
    assert answer.response_metadata["finish_reason"] == "stop"


async def test_the_instant_model_calls_a_tool_that_it_is_offered_once_for_each_question() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    model = InstantModel().bind_tools([tool])

    asked = await whole(model.astream(PROMPT))
    (call,) = asked.tool_calls
    answer = await whole(model.astream([*PROMPT, asked, ToolMessage("rain", tool_call_id=call["id"])]))

    assert (call["name"], call["args"]) == ("weather", {})
    assert (answer.tool_calls, answer.text) == ([], "Answer 4 to: rain")


@pytest.mark.proof
@pytest.mark.slow
async def test_a_session_is_talked_in_over_each_interface(folder: Path) -> None:
    async with run_postgres(folder) as url:
        with run_both(folder, url, "in-process") as (service, _):
            turns = {dialect.name: (await press(service.url, 1, 1.0, dialect.make_talk)).turns for dialect in DIALECTS}

    assert len(turns) == len(DIALECTS)
    assert all(turns.values())


@pytest.mark.proof
@pytest.mark.slow
async def test_runs_that_waited_answer_with_their_own_results(capsys: pytest.CaptureFixture[str]) -> None:
    await waiting_runs.main(["--runs", "3", "--clients", "2", "--idle-seconds", "0"])

    assert "Each of the 3 runs that waited has answered" in capsys.readouterr().out


@pytest.mark.proof
@pytest.mark.slow
async def test_both_services_answer_with_the_instant_model(folder: Path) -> None:
    async with run_postgres(folder) as url:
        with run_both(folder, url, "in-process") as services:
            answers = [_ask(service.url) for service in services]

    assert answers == [f"Answer {shown} to: {QUESTION[:60]}" for shown in (2, 1)]


def _ask(url: str) -> str:
    created = httpx.post(f"{url}/v1/sessions", json={"agent": "plain"}).raise_for_status()
    path = f"{url}/v1/sessions/{created.json()['id']}/messages"
    answer: str = (
        httpx.post(path, json={"content": QUESTION}, timeout=30).raise_for_status().json()["message"]["content"]
    )
    return answer
