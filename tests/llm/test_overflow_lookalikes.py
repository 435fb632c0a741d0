"""What looks like an overflow and is none: taken for one, it would be compacted away and asked again for nothing."""

import json

import pytest

from fakes.model_calls import refusal_of
from fakes.raw_http_server import Answer, anthropic_stream, error_answer, openai_stream
from throughline.domain.errors import (
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ThroughlineError,
)

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"
TOO_LONG = "prompt is too long: 999 tokens > 500 maximum"

Lookalike = tuple[int, dict[str, object], type[ThroughlineError]]
OPENAI: dict[str, Lookalike] = {
    "tokens per minute": (
        429,
        {
            "message": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The "
            "maximum context length is not the problem.",
            "type": "tokens",
            "code": "rate_limit_exceeded",
        },
        ModelRateLimited,
    ),
    "tokens per minute without its code": (
        400,
        {"message": "Limit 30000 tokens per min reached; please reduce the length of the messages."},
        ModelInvalidRequest,
    ),
    "groq's tokens per minute": (
        413,
        {"message": "Request too large: TPM", "type": "tokens", "code": "rate_limit_exceeded"},
        ModelRateLimited,
    ),
    "quota": (
        429,
        {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"},
        ModelQuotaExhausted,
    ),
    "one string too long": (
        400,
        {
            "message": "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576",
            "code": "string_above_max_length",
        },
        ModelInvalidRequest,
    ),
    "user too long": (
        400,
        {"message": "Invalid 'user': string too long. Expected a string with maximum length 64, but got 80 instead."},
        ModelInvalidRequest,
    ),
    "more output than the model gives": (
        400,
        {
            "message": "max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas "
            "you provided 200000.",
            "param": "max_tokens",
            "code": "invalid_value",
        },
        ModelInvalidRequest,
    ),
    "content policy": (
        400,
        {"message": "Your request was rejected by our safety system.", "code": "content_policy_violation"},
        ModelRefused,
    ),
    "azure's content filter": (
        400,
        {"message": "The response was filtered due to the prompt triggering the policy.", "code": "content_filter"},
        ModelRefused,
    ),
    "tool schema": (
        400,
        {
            "message": "Invalid schema for function 'look_up': In context=(), array schema missing items.",
            "code": "invalid_function_parameters",
        },
        ModelInvalidRequest,
    ),
    "too many tools": (
        400,
        {"message": "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 200 instead."},
        ModelInvalidRequest,
    ),
    "unanswered calls": (
        400,
        {"message": "An assistant message with 'tool_calls' must be followed by tool messages responding to each."},
        ModelInvalidRequest,
    ),
    "user text in single quotes": (
        400,
        {"message": "Invalid value: 'tell me of the maximum context length is 300 tokens'. Supported: 'a'"},
        ModelInvalidRequest,
    ),
    "short user text in quotes": (400, {"message": "Invalid value: 'prompt is too long'."}, ModelInvalidRequest),
    "user text in double quotes": (
        400,
        {"message": f'messages[3].content: expected an object, got "{TOO_LONG}"'},
        ModelInvalidRequest,
    ),
    "user text in pydantic's words": (
        400,
        {"message": f"1 validation error for Message: input_value='{TOO_LONG}'"},
        ModelInvalidRequest,
    ),
    "user text after received": (400, {"message": f"Bad message. Received: {TOO_LONG}"}, ModelInvalidRequest),
}
RATE = (
    "This request would exceed the rate limit for your organization of 30,000 input tokens per minute. Please reduce "
    "the prompt length or try again later."
)
ANTHROPICS: dict[str, tuple[int, str, str, type[ThroughlineError]]] = {
    "tokens per minute": (429, "rate_limit_error", RATE, ModelRateLimited),
    "long context needs credits": (
        429,
        "rate_limit_error",
        "Extra usage is required for long context requests.",
        ModelRateLimited,
    ),
    "credit": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
        ModelQuotaExhausted,
    ),
    "more output than the model gives": (
        400,
        "invalid_request_error",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-test",
        ModelInvalidRequest,
    ),
    "an image too large": (
        400,
        "invalid_request_error",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 7340032 bytes > 5242880 bytes",
        ModelInvalidRequest,
    ),
    "unanswered calls": (
        400,
        "invalid_request_error",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a.",
        ModelInvalidRequest,
    ),
    "user text in quotes": (
        400,
        "invalid_request_error",
        f'messages.0.content: Input should be a valid list, got "{TOO_LONG}"',
        ModelInvalidRequest,
    ),
}


@pytest.mark.parametrize(("status", "fields", "expected"), list(OPENAI.values()), ids=list(OPENAI))
async def test_what_looks_like_an_overflow_is_told_apart(
    status: int, fields: dict[str, object], expected: type[ThroughlineError]
) -> None:
    body = {"error": {"type": "invalid_request_error", "param": None, "code": None, **fields}}

    answered = await refusal_of(error_answer(status, body))
    streamed = await refusal_of(openai_stream(body))

    assert type(answered) is expected
    assert type(streamed).code != "context_overflow"


@pytest.mark.parametrize(("status", "kind", "message", "expected"), list(ANTHROPICS.values()), ids=list(ANTHROPICS))
async def test_what_looks_like_an_overflow_of_anthropics_is_told_apart(
    status: int, kind: str, message: str, expected: type[ThroughlineError]
) -> None:
    body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}

    answered = await refusal_of(error_answer(status, body), ANTHROPIC)
    streamed = await refusal_of(anthropic_stream(body), ANTHROPIC)

    assert type(answered) is type(streamed) is expected


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize(
    ("code", "status", "message", "expected"),
    [
        (
            400,
            "INVALID_ARGUMENT",
            "max_output_tokens must be below the token limit of the model",
            ModelInvalidRequest,
        ),
        (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota. Quota exceeded for metric: input_token_count, limit: 250000",
            ModelRateLimited,
        ),
    ],
)
async def test_what_looks_like_an_overflow_of_geminis_is_told_apart(
    code: int, status: str, message: str, expected: type[ThroughlineError], *, in_stream: bool
) -> None:
    body = {"error": {"code": code, "message": message, "status": status, "details": []}}
    streamed = Answer([f"data: {json.dumps(body)}\r\n\r\n"], content_type="text/event-stream")

    error = await refusal_of(streamed if in_stream else error_answer(code, body), GEMINI)

    assert type(error) is expected
