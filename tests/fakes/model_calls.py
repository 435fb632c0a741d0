"""Drives one model call through a real provider package against a scripted loopback server."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.raw_http_server import Answer, RawServer, anthropic_start, anthropic_stream, openai_stream, serve_raw
from fakes.waiting import HANG_SECONDS
from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Role
from throughline.domain.prompt import (
    AnswerComplete,
    ModelRequest,
    Prompt,
    PromptMessage,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
)
from throughline.llm.classify_error import KnownRefusal, known_answers
from throughline.llm.registry import ModelRegistry, ModelsConfig

KNOWN_REFUSALS = known_answers().refusals

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
    call_pieces: tuple[ToolCallPiece, ...] = ()


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
        pieces = tuple(event.text for event in deltas if isinstance(event, TextPiece))
        reasoning = tuple(event.text for event in deltas if isinstance(event, ReasoningPiece))
        call_pieces = tuple(event for event in deltas if isinstance(event, ToolCallPiece))
        assert len(pieces) + len(reasoning) + len(call_pieces) == len(deltas)
        check_call_pieces(call_pieces, last)
        return Heard(pieces, last, server.requests[0], reasoning, call_pieces)


def check_call_pieces(pieces: Sequence[ToolCallPiece], answer: AnswerComplete) -> None:
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


OF_ANTHROPIC = tuple(known for known in KNOWN_REFUSALS if known.name.startswith("anthropic_"))
OF_GOOGLE = tuple(known for known in KNOWN_REFUSALS if known.name.startswith("gemini_"))
OF_CONNECTIONS = tuple(known for known in KNOWN_REFUSALS if not known.statuses)
ON_OPENAI_WIRE = tuple(known for known in KNOWN_REFUSALS if known not in (*OF_ANTHROPIC, *OF_GOOGLE, *OF_CONNECTIONS))

STATUSES = {
    "openai_no_access": 403,
    "openai_not_verified": 400,
    "anthropic_credit": 400,
    "gemini_key": 400,
    "gemini_region": 400,
    "openrouter_no_images": 404,
    "openrouter_credits": 402,
    "openrouter_unknown_model": 400,
    "template_missing": 400,
    "template_alternating_roles": 400,
    "template_no_system": 400,
    "ollama_no_images": 500,
    "llamacpp_jinja": 500,
    "llamacpp_no_images": 500,
    "lmstudio_none_loaded": 404,
    "lmstudio_unknown_model": 400,
}
"""The status of the recorded answer, of refusals that come with several."""

CODES = {
    "openai_max_tokens": "unsupported_parameter",
    "openai_temperature": "unsupported_value",
    "openai_no_access": "model_not_found",
    "openai_unknown_model": "model_not_found",
    "openai_region": "unsupported_country_region_territory",
    "lmstudio_none_loaded": "model_not_found",
    "lmstudio_unknown_model": "model_not_found",
    "azure_deployment": "DeploymentNotFound",
    "azure_api_version": "404",
    "azure_content_filter": "content_filter",
}


def status_of(known: KnownRefusal) -> int:
    """Return the status of the recorded answer."""
    if len(known.statuses) == 1:
        return next(iter(known.statuses))
    return STATUSES[known.name]


def refused_on_openai_wire(known: KnownRefusal) -> Refused:
    """Return the answer of a server on OpenAI's wire."""
    status = status_of(known)
    raw: Json | str | None = None
    if known.name.startswith(("vllm_", "template_")):
        kind = "NotFoundError" if status == 404 else "BadRequestError"
        raw = {"error": {"message": known.says, "type": kind, "param": None, "code": status}}
    elif known.name.startswith("openrouter_"):
        raw = {"error": {"message": known.says, "code": status}}
    elif known.name.startswith("llamacpp_"):
        kind = "unavailable_error" if status == 503 else "server_error"
        raw = {"error": {"code": status, "message": known.says, "type": kind}}
    elif known.name.startswith("azure_"):
        raw = {"error": {"code": CODES[known.name], "message": known.says}}
    elif known.name == "wrong_path":
        raw = {"detail": known.says}
    elif known.name == "http_to_https_port":
        raw = f"{known.says}\n"
    kind = "api_error" if known.name.startswith("ollama_") else "invalid_request_error"
    return Refused(known.says, status=status, type=kind, code=CODES.get(known.name), raw=raw)
