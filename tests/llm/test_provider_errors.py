import asyncio

import pytest

from fakes.model_calls import refusal_of
from fakes.raw_http_server import Answer, anthropic_stream, error_answer, openai_stream
from throughline.domain.errors import (
    AnswerIncomplete,
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnavailable,
    NotFound,
    TemporaryError,
)
from throughline.llm.classify_error import classify

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
