"""What looks like an overflow and is none: taken for one, it would be compacted away and asked again for nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import pytest

from fakes.model_calls import refusal_of
from fakes.raw_http_server import Answer, anthropic_stream, error_answer, openai_stream
from throughline.domain.errors import (
    ContextOverflow,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ThroughlineError,
)
from throughline.llm.classify_error import classify

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"
TOO_LONG = "prompt is too long: 999 tokens > 500 maximum"

Answered = tuple[int, dict[str, object], type[ThroughlineError]]
OPENAI: dict[str, Answered] = {
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


class BotoError(Exception):
    """botocore's ClientError and EventStreamError: Amazon Bedrock."""

    def __init__(self, code: str, message: str, status: int | None = 400) -> None:
        super().__init__(f"An error occurred ({code}) when calling the ConverseStream operation: {message}")
        metadata = {} if status is None else {"HTTPStatusCode": status}
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}


@dataclass
class OllamaError(Exception):
    """ollama.ResponseError."""

    error: str
    status_code: int = 400


@dataclass
class CohereError(Exception):
    """cohere's ApiError."""

    body: Mapping[str, object]
    status_code: int = 400


@dataclass
class GoogleCallError(Exception):
    """google.api_core's InvalidArgument, which Vertex AI's package raises."""

    message: str
    code: int = 400
    details: tuple[object, ...] = ()


def mistral_error(status: int, body: dict[str, object]) -> Exception:
    """What langchain-mistralai raises: httpx's own error."""
    request = httpx.Request("POST", "https://api.mistral.ai/v1/chat/completions")
    response = httpx.Response(status, json=body, request=request)
    return httpx.HTTPStatusError(f"Error response {status}", request=request, response=response)


MISTRAL = "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
SDKS_GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("error", "window", "prompt"),
    [
        (BotoError("ValidationException", "Input is too long for requested model."), None, None),
        (BotoError("ValidationException", "input tokens exceeded"), None, None),
        (BotoError("validationException", "too many input tokens", status=None), None, None),
        (BotoError("ValidationException", "expected maxLength: 50000, actual: 60000"), None, None),
        (BotoError("ValidationException", "prompt tokens (9000) exceed model maximum (8192)"), 8192, 9000),
        (OllamaError("the prompt is longer than the context length currently available to the model"), None, None),
        (OllamaError("input after truncation exceeds maximum context length"), None, None),
        (CohereError({"message": "too many tokens: total number of tokens must be at most 4096"}), None, None),
        (GoogleCallError(SDKS_GEMINI), 1_048_576, 1_200_000),
        (mistral_error(400, {"object": "error", "message": MISTRAL, "code": "3051"}), 32_768, 40_000),
        (mistral_error(400, {"message": "no words we know", "code": 3051}), None, None),
    ],
)
def test_overflows_of_other_packages_are_recognised_with_their_numbers(
    error: Exception, window: int | None, prompt: int | None
) -> None:
    found = classify(error)

    assert isinstance(found, ContextOverflow)
    assert (found.window_tokens, found.prompt_tokens) == (window, prompt)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BotoError("ThrottlingException", "Too many tokens, please wait before trying again.", 429), ModelRateLimited),
        (BotoError("ThrottlingException", "Too many tokens, please wait.", status=None), ModelRateLimited),
        (BotoError("ValidationException", "messages: roles must alternate"), ModelInvalidRequest),
        (OllamaError("model requires more system memory"), ModelInvalidRequest),
        (CohereError({"message": "invalid request: message must be at least 1 token long"}), ModelInvalidRequest),
        (GoogleCallError("Unable to submit request because it must have a text parameter"), ModelInvalidRequest),
        (mistral_error(429, {"message": "Requests rate limit exceeded", "code": "1300"}), ModelRateLimited),
    ],
)
def test_other_errors_of_these_packages_are_no_overflows(error: Exception, expected: type[Exception]) -> None:
    assert type(classify(error)) is expected


def test_a_response_that_was_never_read_says_nothing() -> None:
    request = httpx.Request("POST", "https://example.org")
    response = httpx.Response(400, request=request, stream=httpx.ByteStream(b"prompt is too long"))

    error = httpx.HTTPStatusError("Bad Request", request=request, response=response)

    assert type(classify(error)) is ModelInvalidRequest
