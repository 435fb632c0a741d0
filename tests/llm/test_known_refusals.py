"""Known refusals: what each server really says becomes a cause and a remedy, through each provider's package."""

import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import openai
import pytest

from fakes.known_refusals import (
    OF_ANTHROPIC,
    OF_CONNECTIONS,
    OF_GOOGLE,
    ON_OPENAI_WIRE,
    refused_on_openai_wire,
    status_of,
)
from fakes.model_calls import refusal_of, simple_request
from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.refusals import Refused
from fakes.provider_double.script import ScriptStep
from fakes.raw_http_server import Answer, error_answer, openai_stream
from throughline.domain.errors import (
    ContextOverflow,
    ModelInvalidRequest,
    ModelRateLimited,
    ModelUnavailable,
    ThroughlineError,
)
from throughline.domain.message import Role
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage
from throughline.llm.classify_error import KNOWN_REFUSALS, classify, find_refusal
from throughline.llm.known_refusal import KnownRefusal
from throughline.llm.provider_error import read_failure
from throughline.llm.registry import ModelRegistry

MODEL = "double-8k-bytes2"


def name_of(known: KnownRefusal) -> str:
    return known.name


def of_name(name: str) -> KnownRefusal:
    return next(known for known in KNOWN_REFUSALS if known.name == name)


@pytest.fixture
async def registry() -> AsyncIterator[ModelRegistry]:
    registry = ModelRegistry()
    yield registry
    await registry.close()


async def refusal_by(double: ProviderDouble, refused: Refused, registry: ModelRegistry) -> ThroughlineError:
    double.script(ScriptStep(refused=refused))
    with pytest.raises(ThroughlineError) as caught:
        async for _ in registry.get(f"openai:{MODEL}", double.url).stream(simple_request()):
            pass
    return caught.value


def reads(known: KnownRefusal, error: ThroughlineError, model: str) -> bool:
    """Whether the user reads the model, the cause and the remedy, and nothing else but a status and a code."""
    return error.detail.startswith(f"{model}: {known.cause}. {known.remedy}") and known.says not in error.detail


def test_the_table_has_more_than_twenty_refusals_each_with_its_own_name() -> None:
    names = [known.name for known in KNOWN_REFUSALS]

    assert len(names) == len(set(names)) > 20


@pytest.mark.parametrize("known", KNOWN_REFUSALS, ids=name_of)
def test_each_entry_is_made_of_plain_short_sentences(known: KnownRefusal) -> None:
    assert known.cause[-1] != "."
    assert known.remedy[-1] != "."
    assert known.remedy[0].isupper()
    assert max(len(known.cause), len(known.remedy)) <= 120
    assert all((known.server, known.says, known.source))


@pytest.mark.parametrize("known", ON_OPENAI_WIRE, ids=name_of)
async def test_a_server_on_openais_wire_gets_cause_and_remedy(
    known: KnownRefusal, provider_double: ProviderDouble, registry: ModelRegistry
) -> None:
    error = await refusal_by(provider_double, refused_on_openai_wire(known), registry)

    assert type(error) is known.kind
    assert reads(known, error, f"openai:{MODEL}")
    assert f"({status_of(known)}" in error.detail


@pytest.mark.parametrize("known", OF_ANTHROPIC, ids=name_of)
async def test_anthropics_refusals_get_cause_and_remedy(known: KnownRefusal) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": known.says}}

    error = await refusal_of(error_answer(status_of(known), body), "anthropic:claude-test")

    assert type(error) is known.kind
    assert reads(known, error, "anthropic:claude-test")


@pytest.mark.parametrize("known", OF_GOOGLE, ids=name_of)
async def test_googles_refusals_get_cause_and_remedy(known: KnownRefusal) -> None:
    status = status_of(known)
    body = {"error": {"code": status, "message": known.says, "status": "INVALID_ARGUMENT"}}

    error = await refusal_of(error_answer(status, body), "google_genai:gemini-test")

    assert type(error) is known.kind
    assert reads(known, error, "google_genai:gemini-test")


@pytest.mark.parametrize("known", OF_CONNECTIONS, ids=name_of)
def test_a_connection_that_cannot_be_opened_gets_cause_and_remedy(known: KnownRefusal) -> None:
    request = httpx2.Request("POST", "http://127.0.0.1:1/v1/chat/completions")
    error = openai.APIConnectionError(request=request)
    error.__cause__ = httpx2.ConnectError(known.says, request=request)

    ours = classify(error)

    assert type(ours) is known.kind
    assert reads(known, ours, "the model")


async def test_a_port_where_nothing_listens_is_named_as_the_cause(registry: ModelRegistry) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections to it are refused
        model = registry.get("openai:gpt-4o", f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(ModelUnavailable, match="nothing answers at the server's address"):
            await anext(model.stream(simple_request()))


async def test_https_to_a_server_of_plain_http_is_named_and_not_retried(
    registry: ModelRegistry, provider_double: ProviderDouble
) -> None:
    model = registry.get("openai:gpt-4o", provider_double.url.replace("http://", "https://"))

    with pytest.raises(ModelInvalidRequest, match="does not speak HTTPS at this port"):
        await anext(model.stream(simple_request()))


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("vllm_unknown_model", 404, {"object": "error", "message": "The model `a/b` does not exist.", "code": 404}),
        ("wrong_path", 404, "404 page not found\n"),
        ("wrong_path", 404, "<html><body><h1>404</h1></body></html>"),
        ("wrong_path", 404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
        ("ollama_not_pulled", 404, {"error": {"message": "model 'qwen3-coder:30b-instruct' not found"}}),
        ("lmstudio_none_loaded", 400, {"error": {"message": "No models loaded. Please load a model."}}),
        ("openrouter_credits", 402, {"error": {"message": "This request requires more credits, or fewer max_tokens."}}),
        ("openrouter_data_policy", 404, {"error": {"message": "No endpoints available matching your guardrails."}}),
        (
            "llamacpp_jinja",
            500,
            {"error": {"code": 500, "message": "Unsupported param: tools", "type": "server_error"}},
        ),
    ],
)
async def test_other_wordings_of_a_refusal_are_known_too(name: str, status: int, body: object) -> None:
    error = await refusal_of(error_answer(status, body))

    assert reads(of_name(name), error, "openai:gpt-4o")


@pytest.mark.parametrize("code", [400, None])
async def test_a_refusal_inside_a_stream_is_known_too(code: int | None) -> None:
    known = of_name("vllm_tools_off")

    error = await refusal_of(openai_stream({"error": {"message": known.says, "code": code}}))

    assert type(error) is known.kind
    assert reads(known, error, "openai:gpt-4o")


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (429, "registry.ollama.ai/library/x does not support tools", ModelRateLimited),
        (500, "No models loaded.", ModelUnavailable),
        (400, "This model's maximum context length is 8192 tokens. Use 'max_tokens'.", ContextOverflow),
        (400, "Something else is wrong with messages", ModelInvalidRequest),
    ],
)
async def test_the_status_and_the_window_decide_before_the_words(
    status: int, message: str, expected: type[Exception]
) -> None:
    error = await refusal_of(error_answer(status, {"error": {"message": message}}))

    assert type(error) is expected
    assert not any(known.cause in error.detail for known in KNOWN_REFUSALS)


async def test_an_answer_without_events_is_told_with_a_hint_at_the_address() -> None:
    error = await refusal_of(Answer(['{"error":"Unexpected endpoint or method. (POST /chat/completions)"}']))

    assert error.detail.endswith("cannot be read; try again, and check base_url, which usually ends with /v1")


async def test_a_users_quoted_words_are_no_known_refusal() -> None:
    said = "Invalid value: 'this model does not support tools, I was told'."
    request = ModelRequest(Prompt("", (PromptMessage(Role.USER, said),)), (), 100)

    error = await refusal_of(error_answer(400, {"error": {"message": said}}), request=request)

    assert "calls the request invalid" in error.detail


def test_a_model_that_loads_is_asked_again_after_the_delay_the_server_names() -> None:
    response = httpx2.Response(
        503,
        headers={"retry-after": "7"},
        json={"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        request=httpx2.Request("POST", "http://127.0.0.1:1/v1"),
    )
    error = openai.InternalServerError("busy", response=response, body=response.json())

    ours = classify(error)

    assert isinstance(ours, ModelUnavailable)
    assert ours.delay_seconds == 7


def test_an_error_in_a_stream_without_a_message_is_no_known_refusal() -> None:
    failure = read_failure(openai.APIError("", request=httpx2.Request("POST", "http://a/v1"), body={"type": "odd"}))

    assert find_refusal(replace(failure, in_stream=True)) is None
