"""Overflows as provider packages raise them that are not installed here: the error's shape, given to the classifier."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import pytest

from throughline.domain.errors import ContextOverflow, ModelInvalidRequest, ModelRateLimited
from throughline.llm.classify_error import classify


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
GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


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
        (GoogleCallError(GEMINI), 1_048_576, 1_200_000),
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
