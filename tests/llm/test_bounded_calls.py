import asyncio
import json
from dataclasses import replace
from itertools import chain, repeat

import pytest
from langchain_core.tracers.context import collect_runs

from fakes.model_calls import CONFIG, OPENAI_SAYS_OK, address_for, hear, refusal_of, simple_request
from fakes.raw_http_server import EVENT_STREAM, JSON, Answer, RawServer, anthropic_start, serve_raw
from throughline.domain.errors import AnswerTooLong, ModelInvalidRequest, ModelUnavailable
from throughline.domain.prompt import AnswerComplete, TextPiece
from throughline.llm.bounded_http import ResponseBounds
from throughline.llm.chat_model import CHUNKS_AT_ONCE
from throughline.llm.registry import EmbeddingConfig, ModelRegistry, make_embedder

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"
PROVIDERS = ("gpt-4o", ANTHROPIC, GEMINI)
BOUNDED = replace(
    CONFIG, bounds=ResponseBounds(whole_bytes=400_000, event_bytes=50_000, lines=2_000, error_bytes=50_000)
)
EMPTY_DELTA = b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}\n\n'
REASONING = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}\n\n'
LETTER = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def endless(piece: bytes, before: bytes = b"", content_type: str = EVENT_STREAM, status: int = 200) -> Answer:
    return Answer(chain([before or piece], repeat(piece)), status=status, content_type=content_type)


@pytest.mark.parametrize("event", [EMPTY_DELTA, REASONING], ids=["empty", "reasoning"])
async def test_a_stream_of_chunks_that_add_nothing_is_stopped_by_their_number(event: bytes) -> None:
    error = await refusal_of(endless(event * 10), config=replace(CONFIG, max_chunks=300))

    assert type(error) is AnswerTooLong
    assert "openai:gpt-4o: the answer was stopped: the provider sent more than 300 chunks" in error.detail


async def test_empty_deltas_of_anthropic_are_stopped_by_their_number() -> None:
    opened = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
    events = chain([anthropic_start(input_tokens=5), opened], repeat(delta))
    pieces = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)

    error = await refusal_of(
        Answer(pieces, content_type=EVENT_STREAM), ANTHROPIC, config=replace(CONFIG, max_chunks=300)
    )

    assert type(error) is AnswerTooLong
    assert "300 chunks" in error.detail


@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_line_without_an_end_is_stopped(model: str) -> None:
    error = await refusal_of(endless(b"y" * 10_000, before=b'data: {"x": "'), model, config=BOUNDED)

    assert type(error) is AnswerTooLong
    assert "more than 50,000 bytes in one event or line" in error.detail


async def test_an_event_of_many_lines_without_an_end_is_stopped() -> None:
    error = await refusal_of(endless(b"data: y" + b"y" * 1_000 + b"\n"), config=BOUNDED)

    assert "more than 50,000 bytes in one event or line" in error.detail


@pytest.mark.parametrize(
    ("answer", "cap"),
    [
        pytest.param(endless(b"<p>" + b"y" * 5_000 + b"</p>\n", content_type="text/html"), "400,000 bytes", id="html"),
        pytest.param(endless(b": ping\n" * 500), "2,000 lines", id="comments"),
    ],
)
async def test_what_is_no_answer_is_stopped_however_long_it_goes_on(answer: Answer, cap: str) -> None:
    error = await refusal_of(answer, config=BOUNDED)

    assert type(error) is AnswerTooLong
    assert f"the provider sent more than {cap}" in error.detail


@pytest.mark.parametrize("model", PROVIDERS)
async def test_an_error_body_without_an_end_is_cut_and_its_status_counts(model: str) -> None:
    error = await refusal_of(endless(b"y" * 10_000, status=500), model, config=BOUNDED)

    assert type(error) is ModelUnavailable
    assert "500" in error.detail


@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_compressed_answer_is_refused_and_none_is_asked_for(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "test-key")
    answer = replace(endless(b"\x1f\x8b" * 8_000), headers=(("content-encoding", "gzip"),))
    registry = ModelRegistry(CONFIG)
    async with serve_raw(answer) as server:
        with pytest.raises(ModelInvalidRequest, match="compressed"):
            await ask(registry, model, server)
        await registry.close()

    assert "accept-encoding: identity" in server.heads[0].lower()


async def test_vectors_without_an_end_are_stopped() -> None:
    async with serve_raw(endless(b"1.0, " * 1_000, content_type=JSON)) as server:
        embedder = make_embedder(EmbeddingConfig("any", f"{server.url}/v1", bounds=BOUNDED.bounds))
        with pytest.raises(AnswerTooLong, match="openai:any: the answer was stopped"):
            await embedder.embed(["a text"])
        await embedder.close()


async def test_a_compressed_error_counts_by_its_status() -> None:
    answer = replace(endless(b"\x1f\x8b" * 8_000, status=503), headers=(("content-encoding", "gzip"),))

    error = await refusal_of(answer, config=BOUNDED)

    assert type(error) is ModelUnavailable
    assert "503" in error.detail


@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_redirect_to_another_server_is_not_followed(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "test-key")
    registry = ModelRegistry(CONFIG)
    async with serve_raw() as other:
        moved = Answer([], status=307, headers=(("location", f"{other.url}/v1/chat/completions"),))
        async with serve_raw(moved) as server:
            with pytest.raises(ModelInvalidRequest, match="redirects"):
                await ask(registry, model, server)
            await registry.close()

    assert other.paths == []


async def test_a_redirect_within_the_server_is_followed() -> None:
    registry = ModelRegistry(CONFIG)
    moved = Answer([], status=307, headers=(("location", "/v2/chat/completions"),))
    async with serve_raw(moved, OPENAI_SAYS_OK) as server:
        answer = await ask(registry, "gpt-4o", server)
        await registry.close()

    assert answer.text == "ok"
    assert server.paths[1] == "/v2/chat/completions"


async def test_an_answer_of_one_long_event_is_taken() -> None:
    text = "é" * 40_000
    heard = await hear(Answer([LETTER.replace(b'"a"', f'"{text}"'.encode()), STOP], content_type=EVENT_STREAM))

    assert len(heard.answer.text) == len(text)


async def test_no_tracer_hears_of_a_call() -> None:
    with collect_runs() as runs:
        await hear(OPENAI_SAYS_OK)

    assert runs.traced_runs == []


async def test_a_fast_provider_lets_others_have_their_turn() -> None:
    registry, turns, rows = ModelRegistry(CONFIG), 0, [0]

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(take_turns())
    async with serve_raw(Answer([LETTER * 400, STOP], content_type=EVENT_STREAM)) as server:
        seen = turns
        async for event in registry.get("gpt-4o", address_for("gpt-4o", server)).stream(simple_request()):
            if isinstance(event, TextPiece):
                rows = [*rows[:-1], rows[-1] + 1] if turns == seen else [*rows, 1]
                seen = turns
        await registry.close()
    other.cancel()

    assert sum(rows) == 400
    assert max(rows) <= CHUNKS_AT_ONCE


async def ask(registry: ModelRegistry, model: str, server: RawServer) -> AnswerComplete:
    events = [event async for event in registry.get(model, address_for(model, server)).stream(simple_request())]
    assert isinstance(events[-1], AnswerComplete)
    return events[-1]
