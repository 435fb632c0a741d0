"""Drives one model call through a real provider package against a scripted loopback server."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from fakes.raw_http_server import Answer, RawServer, anthropic_start, anthropic_stream, openai_stream, serve_raw
from fakes.waiting import HANG_SECONDS
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Role
from throughline.domain.prompt import (
    AnswerComplete,
    ModelRequest,
    Prompt,
    PromptMessage,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from throughline.llm.registry import ModelRegistry, ModelsConfig

CONFIG = ModelsConfig(idle_timeout_seconds=HANG_SECONDS, connect_timeout_seconds=HANG_SECONDS)
IMPATIENT = replace(CONFIG, idle_timeout_seconds=0.3)
"""For tests of a model that falls silent: that limit comes first, whatever the machine is doing."""

OPENAI_SAYS_OK = openai_stream({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]})
ANTHROPIC_SAYS_OK = anthropic_stream(
    anthropic_start(input_tokens=5),
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 5, "output_tokens": 1}},
    {"type": "message_stop"},
)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back: the pieces of text and of reasoning in order, the answer, and what the server was sent."""

    pieces: tuple[str, ...]
    answer: AnswerComplete
    sent: dict[str, object]
    reasoning: tuple[str, ...] = ()
    call_pieces: tuple[ToolCallDelta, ...] = ()


def simple_request(text: str = "hi") -> ModelRequest:
    """One user message, no tools."""
    return ModelRequest(Prompt("Be brief.", (PromptMessage(Role.USER, text),)), (), 100)


def address_for(model: str, server: RawServer) -> str:
    """The base URL as each provider's package wants it."""
    return server.url if model.startswith(("anthropic:", "google_genai:")) else f"{server.url}/v1"


async def hear(
    answer: Answer, model: str = "gpt-4o", request: ModelRequest | None = None, config: ModelsConfig = CONFIG
) -> Heard:
    """Ask once and return all that came back; the call must succeed."""
    registry = ModelRegistry(config)
    async with serve_raw(answer) as server:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("GOOGLE_API_KEY", "test-key")
            chat_model = registry.get(model, address_for(model, server))
        try:
            events = [event async for event in chat_model.stream(request or simple_request())]
        finally:
            await registry.close()
        *deltas, last = events
        assert isinstance(last, AnswerComplete)
        pieces = tuple(event.text for event in deltas if isinstance(event, TextDelta))
        reasoning = tuple(event.text for event in deltas if isinstance(event, ReasoningDelta))
        call_pieces = tuple(event for event in deltas if isinstance(event, ToolCallDelta))
        assert len(pieces) + len(reasoning) + len(call_pieces) == len(deltas)
        check_call_pieces(call_pieces, last)
        return Heard(pieces, last, server.requests[0], reasoning, call_pieces)


def check_call_pieces(pieces: Sequence[ToolCallDelta], answer: AnswerComplete) -> None:
    """Check that the pieces of each call are together its arguments, and have its id and its name."""
    joined: dict[str, str] = defaultdict(str)
    for piece in pieces:
        assert piece.text
        joined[piece.call_id] += piece.text
    names = {(piece.call_id, piece.name) for piece in pieces}
    for call in answer.tool_calls:
        assert joined[call.id] == (call.arguments if call.name and (call.id, call.name) in names else "")
    called = [call.id for call in answer.tool_calls]
    if not answer.is_cut:
        assert joined.keys() == set(called)
        assert all(called[piece.index] == piece.call_id for piece in pieces)


async def refusal_of(
    answer: Answer,
    model: str = "gpt-4o",
    text: str = "hi",
    config: ModelsConfig = CONFIG,
    *,
    request: ModelRequest | None = None,
) -> ThroughlineError:
    """Ask once and return the error; the call must fail with one of ours."""
    asked = request or replace(simple_request(text), max_output_tokens=50)
    with pytest.raises(ThroughlineError) as caught:
        await hear(answer, model, asked, config)
    return caught.value
