import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import openai
import pytest

from fakes.model_calls import (
    KNOWN_REFUSALS,
    OF_ANTHROPIC,
    OF_CONNECTIONS,
    OF_GOOGLE,
    ON_OPENAI_WIRE,
    refusal_of,
    refused_on_openai_wire,
    simple_request,
    status_of,
)
from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.provider_double.refusals import Refused
from fakes.raw_http_server import Answer, anthropic_stream, error_answer, openai_stream
from throughline.domain.errors import (
    AnswerIncomplete,
    ContextOverflow,
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    NotFound,
    TemporaryError,
    ThroughlineError,
)
from throughline.domain.message import Role
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage
from throughline.llm.classify_error import KnownRefusal, classify, find_refusal
from throughline.llm.provider_error import read_failure
from throughline.llm.registry import ModelRegistry

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}
DAILY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}


def openai_body(code: str | int | None, kind: str = "invalid_request_error") -> dict[str, object]:
    return {"error": {"message": "Something is wrong.", "type": kind, "param": None, "code": code}}


def anthropic_body(kind: str, message: str = "Something is wrong.") -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def google_body(code: int, status: str, *details: object, message: str = "Wrong.") -> dict[str, object]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error_answer(401, openai_body("invalid_api_key")), ModelAuthenticationFailed),
        (error_answer(403, openai_body("unsupported_country_region_territory")), ModelAuthenticationFailed),
        (error_answer(404, openai_body("model_not_found")), ModelInvalidRequest),
        (error_answer(400, openai_body("invalid_value")), ModelInvalidRequest),
        (error_answer(422, openai_body(None)), ModelInvalidRequest),
        (error_answer(400, openai_body("content_filter")), ModelRefused),
        (error_answer(402, openai_body("invalid_request_error", "unknown_error")), ModelQuotaExhausted),
        (error_answer(429, openai_body("insufficient_quota", "insufficient_quota")), ModelQuotaExhausted),
        (error_answer(429, openai_body("rate_limit_exceeded", "requests")), ModelRateLimited),
        (error_answer(408, openai_body(None)), ModelTimeout),
        (error_answer(500, openai_body(None, "server_error")), ModelUnavailable),
        (error_answer(503, "<html><body>Service Unavailable</body></html>"), ModelUnavailable),
        (error_answer(504, ""), ModelTimeout),
        (error_answer(529, ""), ModelUnavailable),
        (Answer(["<html>Please log in</html>"], content_type="text/html"), ModelUnavailable),
        (openai_stream("{not json"), ModelUnavailable),
        (openai_stream({"error": {"message": "slow down", "type": "rate_limit_error"}}), ModelRateLimited),
        (openai_stream({"error": {"message": "busy", "code": 503}}), ModelUnavailable),
        (openai_stream({"error": {"message": "no credit", "code": "insufficient_quota"}}), ModelQuotaExhausted),
        (openai_stream({"error": {"message": "no more to say"}}), ModelUnavailable),
    ],
)
async def test_an_error_on_the_openai_wire_becomes_one_of_ours(answer: Answer, expected: type[Exception]) -> None:
    error = await refusal_of(answer)

    assert type(error) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error_answer(401, anthropic_body("authentication_error")), ModelAuthenticationFailed),
        (error_answer(429, anthropic_body("rate_limit_error")), ModelRateLimited),
        (error_answer(529, anthropic_body("overloaded_error")), ModelUnavailable),
        (error_answer(500, anthropic_body("api_error")), ModelUnavailable),
        (
            error_answer(
                400, anthropic_body("invalid_request_error", "Your credit balance is too low to access the API.")
            ),
            ModelQuotaExhausted,
        ),
        (
            error_answer(
                400,
                anthropic_body("invalid_request_error", "messages.2: `tool_use` ids were found without `tool_result`"),
            ),
            ModelInvalidRequest,
        ),
        (anthropic_stream(anthropic_body("overloaded_error")), ModelUnavailable),
        (anthropic_stream(anthropic_body("rate_limit_error")), ModelRateLimited),
    ],
)
async def test_an_error_of_anthropic_becomes_one_of_ours(answer: Answer, expected: type[Exception]) -> None:
    error = await refusal_of(answer, ANTHROPIC)

    assert type(error) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error_answer(429, google_body(429, "RESOURCE_EXHAUSTED", RETRY_INFO)), ModelRateLimited),
        (error_answer(429, google_body(429, "RESOURCE_EXHAUSTED", DAILY, RETRY_INFO)), ModelQuotaExhausted),
        (error_answer(503, google_body(503, "UNAVAILABLE")), ModelUnavailable),
        (
            error_answer(400, google_body(400, "INVALID_ARGUMENT", message="API key not valid. Please pass another.")),
            ModelAuthenticationFailed,
        ),
        (error_answer(404, google_body(404, "NOT_FOUND")), ModelInvalidRequest),
    ],
)
async def test_an_error_of_google_becomes_one_of_ours(answer: Answer, expected: type[Exception]) -> None:
    error = await refusal_of(answer, GEMINI)

    assert type(error) is expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "3"}, 3.0),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": "Thu, 01 Jan 2026 00:01:00 GMT", "date": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "-1"}, None),
        ({}, None),
    ],
)
async def test_the_wait_a_provider_asks_for_is_read_from_its_headers(
    headers: dict[str, str], seconds: float | None
) -> None:
    error = await refusal_of(error_answer(429, openai_body("rate_limit_exceeded"), **headers))

    assert isinstance(error, TemporaryError)
    assert error.delay_seconds == seconds


async def test_the_wait_google_asks_for_is_read_from_its_body() -> None:
    error = await refusal_of(error_answer(429, google_body(429, "RESOURCE_EXHAUSTED", RETRY_INFO)), GEMINI)

    assert isinstance(error, ModelRateLimited)
    assert error.delay_seconds == 13.5


async def test_an_error_names_model_status_and_code() -> None:
    error = await refusal_of(error_answer(404, openai_body("model_not_found")))

    assert "openai:gpt-4o" in str(error)
    assert "404 model_not_found" in str(error)


async def test_a_connection_nobody_listens_to_is_a_passing_failure() -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        await asyncio.open_connection("127.0.0.1", 1)

    error = classify(refused.value)

    assert type(error) is ModelUnavailable


def test_one_of_our_errors_is_returned_as_it_is() -> None:
    ours = NotFound("no such session")

    assert classify(ours) is ours


def test_a_timeout_without_any_answer_is_a_timeout() -> None:
    assert type(classify(TimeoutError())) is ModelTimeout


def test_an_error_whose_causes_form_a_ring_is_classified() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first

    assert type(classify(first)) is ModelUnavailable


def test_an_incomplete_answer_counts_as_temporary() -> None:
    assert issubclass(AnswerIncomplete, TemporaryError)


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
