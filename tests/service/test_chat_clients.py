"""OpenAI's client against the real service and the strict provider: answers, streams, tools and a session."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep, Verdict
from fakes.service_process import ServiceProcess, run_service
from fakes.trace_collector import trace_collector
from fakes.waiting import HANG_SECONDS
from throughline.openai.input_items import SUMMARY_HEAD

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


@pytest.mark.slow
async def test_a_chat_with_tools_is_streamed_and_becomes_a_session(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    asked = ScriptStep("I look.", calls=(ScriptedCall("call_1", "weather", '{"town": "Graz"}'),))
    provider_double.script(ScriptStep("Hello."), asked, ScriptStep("It rains."))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    named: dict[str, Any] = {"model": "assistant", "messages": messages, "extra_headers": {"X-Chat-Id": "c"}}
    async with (
        run_service(folder, on_double) as service,
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", _strict_response_validation=True) as client,
    ):
        first = await client.chat.completions.create(**named)
        messages += [first.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "Rain?"}]
        async with client.chat.completions.stream(**named, tools=[WEATHER]) as stream:
            called = (await stream.get_final_completion()).choices[0]
        messages += [called.message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
        last = await client.chat.completions.create(**named, tools=[WEATHER])
        (session,) = (await service.client.get("/v1/sessions")).json()["data"]

    assert (first.choices[0].message.content, called.finish_reason) == ("Hello.", "tool_calls")
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("It rains.", "stop")
    assert (session["message_count"], session["external_id"]) == (6, "c")
    assert provider_double.requests[-1].prompt[0]["content"].endswith("Be brief.")


@pytest.fixture
def with_embeddings(on_double: Mapping[str, str], provider_double: ProviderDouble) -> Mapping[str, str]:
    return {**on_double, "EMBEDDING_MODEL": "openai:small", "EMBEDDING_BASE_URL": provider_double.url}


async def search(service: ServiceProcess, query: str) -> tuple[str, list[str]]:
    answer = await service.client.post("/v1/memories/search", json={"query": query})
    found = answer.raise_for_status().json()
    return found["by"], [memory["text"] for memory in found["data"]]


async def keep(service: ServiceProcess, *texts: str) -> None:
    for text in texts:
        answer = await service.client.post("/v1/memories", json={"text": text})
        assert answer.status_code == httpx.codes.CREATED


async def until_found(service: ServiceProcess, query: str, by: str) -> list[str]:
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await search(service, query))[0] != by:
            await asyncio.sleep(0.1)
    return found[1]


@pytest.mark.slow
@pytest.mark.usefixtures("pgvector")
async def test_memories_from_before_a_model_and_from_another_are_found_by_meaning(
    folder: Path, on_double: Mapping[str, str], with_embeddings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, on_double) as service:
        await keep(service, "The cat is called Miso.")
        without = await search(service, "feline")
        await service.terminate()
    provider_double.embeddings.dimensions = 8
    async with run_service(folder, with_embeddings) as service:
        first = await until_found(service, "feline", "vector")
        await keep(service, "Rex is a dog.")
        await service.terminate()
    provider_double.embeddings.dimensions = 16
    async with run_service(folder, with_embeddings) as service:
        both = await until_found(service, "feline", "vector")
        provider_double.embeddings.failure = "down"
        await keep(service, "Anna lives in Oslo.")
        meanwhile = await search(service, "oslo")
        await service.terminate()
    log = service.log.read_text()

    assert without == ("text", [])
    assert first == ["The cat is called Miso."]
    assert both[0] == "The cat is called Miso."
    assert meanwhile == ("text", ["Anna lives in Oslo."])
    assert "embedding request failed" in log
    assert "Oslo" not in log


@pytest.mark.slow
@pytest.mark.usefixtures("pgvector")
async def test_messages_from_before_a_model_are_found_by_meaning(
    folder: Path, on_double: Mapping[str, str], with_embeddings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.embeddings.dimensions = 1_024
    async with run_service(folder, on_double) as service:
        session = (await service.client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        await service.client.post(f"/v1/sessions/{session}/messages", json={"content": "The cat is called Miso."})
        await service.terminate()
    async with run_service(folder, with_embeddings) as service:
        async with asyncio.timeout(HANG_SECONDS):
            while (found := await search_history(service, "feline"))[0] != "vector":
                await asyncio.sleep(0.1)
        await service.terminate()
    async with run_service(folder, {**with_embeddings, "EMBEDDING_HISTORY": "false"}) as service:
        provider_double.embeddings.requests.clear()
        off = await search_history(service, "feline")
        await service.terminate()

    assert "The cat is called Miso." in found[1]
    assert off == ("text", [])
    assert ("feline",) not in provider_double.embeddings.requests


async def search_history(service: ServiceProcess, query: str) -> tuple[str, list[str]]:
    answer = await service.client.get("/v1/search", params={"q": query})
    found = answer.raise_for_status().json()
    return found["by"], [hit["message"]["content"] for hit in found["data"]]


LONG = "The oven of the bakery in Graz must be cleaned every Friday before noon, and Anna has the key. " * 8


def dialogue(turns: int) -> list[dict[str, object]]:
    said: list[dict[str, object]] = []
    for number in range(turns):
        said += [{"role": "user", "content": f"{number}: {LONG}"}, {"role": "assistant", "content": "Noted."}]
    return said


@pytest.mark.slow
async def test_a_compacted_conversation_goes_on_with_its_summary(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("Anna."))
    async with run_service(folder, on_double) as service:
        client = openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", _strict_response_validation=True)
        async with client:
            compacted = await client.responses.compact(model="assistant", input=dialogue(20))  # type: ignore[arg-type]  # dicts
            again = [item.model_dump() for item in compacted.output]
            answer = await client.responses.create(
                model="assistant",
                input=[*again, {"role": "user", "content": "Who has the key?"}],  # type: ignore[list-item]  # dicts
            )

    assert [item.type for item in compacted.output] == ["compaction"]
    assert compacted.usage.input_tokens > 0
    prompt = [str(message["content"]) for message in provider_double.requests[-1].prompt]
    assert any(text.startswith(SUMMARY_HEAD) for text in prompt)
    assert len(prompt) < 30
    assert (answer.output_text, prompt[-1]) == ("Anna.", "Who has the key?")


async def stream_to_end(service: ServiceProcess, number: int) -> str:
    session = await service.new_session()
    headers = {"Accept": "text/event-stream"}
    path = f"/v1/sessions/{session}/messages"
    async with service.client.stream("POST", path, json={"content": f"tell {number}"}, headers=headers) as response:
        lines = [line async for line in response.aiter_lines() if line.startswith("event: ")]
    return lines[-1].removeprefix("event: ")


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "pause_seconds"), [(16, 0.1), pytest.param(50, 0.25, marks=pytest.mark.proof)])
async def test_many_slow_streams_finish_on_a_pool_of_two_connections(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, streams: int, pause_seconds: float
) -> None:
    slow = ScriptStep(text="a word at a time, slowly, as models do", pieces=8, delay_seconds=pause_seconds)
    provider_double.script(*[slow] * streams)
    settings = {**on_double, "DB_POOL_SIZE": "2", "WORKER_CONCURRENCY": str(streams)}

    async with run_service(folder, settings) as service:
        endings = await asyncio.gather(*(stream_to_end(service, number) for number in range(streams)))
        reachable = await service.client.get("/health/ready")

    assert endings == ["run.completed"] * streams
    assert reachable.is_success


SECRET = "xylophone"


@pytest.mark.slow
@pytest.mark.parametrize("texts", ["false", "true"])
async def test_traces_of_turns_reach_the_collector_of_the_settings(
    folder: Path, on_double: Mapping[str, str], texts: str
) -> None:
    with trace_collector() as collector, trace_collector() as elsewhere:
        environment = {
            **on_double,
            "TRACING": "otlp",
            "TRACING_ENDPOINT": collector.url,
            "TRACING_TEXTS": texts,
            "TRACING_HEADERS_ENV": "COLLECTOR_HEADERS",
            "COLLECTOR_HEADERS": "x-team=blue",
            "OTEL_EXPORTER_OTLP_ENDPOINT": elsewhere.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-another-program",
            "OTEL_SDK_DISABLED": "true",
            "OTEL_TRACES_SAMPLER": "always_off",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other",
        }
        async with run_service(folder, environment) as service:
            session = await service.new_session()
            (await service.send(session, f"Say {SECRET}.")).raise_for_status()
            assert await service.terminate() == 0

    assert collector.span_names.count("invoke_agent assistant") == 1
    assert {"llm_node", "wait in queue", "INSERT messages"} & set(collector.span_names)
    assert "other" not in {resource["service.name"] for resource in collector.resources}
    assert {headers["x-team"] for headers in collector.headers} == {"blue"}
    assert not any("x-key" in headers for headers in collector.headers)
    assert (SECRET.encode() in collector.whole) == (texts == "true")
    assert elsewhere.paths == []
    assert '"trace_id"' in service.log.read_text()


SMALL = "double-16k-cl100k"


@pytest.mark.slow
async def test_a_summary_model_of_the_settings_is_asked_where_the_default_model_lives(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    environment = {**on_double, "CONTEXT_SUMMARY_MODEL": f"openai:{SMALL}"}
    async with run_service(folder, environment) as service:
        session = await service.new_session()
        for number in range(6):
            (await service.send(session, f"stone {number} " + "and another word " * 40)).raise_for_status()
        summarised = (await service.client.post(f"/v1/sessions/{session}/summarize")).raise_for_status().json()

    summaries = [record for record in provider_double.requests if record.model == SMALL]
    assert summarised["outcome"] == "adopted", summarised
    assert {record.verdict for record in summaries} == {Verdict.ANSWERED}
