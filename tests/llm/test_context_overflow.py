import json

import pytest

from fakes.model_calls import refusal_of
from fakes.raw_http_server import Answer, anthropic_stream, error_answer, openai_stream
from throughline.domain.errors import ContextOverflow, ModelInvalidRequest
from throughline.llm.context_windows import get_context_limit

ANTHROPIC = "anthropic:claude-test"
GEMINI = "google_genai:gemini-test"


def openai_error(message: str, **fields: object) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}}


OPENAI_SHAPES = [
    pytest.param(
        openai_error(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            code="context_length_exceeded",
            param="messages",
        ),
        128_000,
        130_001,
        id="openai",
    ),
    pytest.param(
        openai_error(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens.",
            code="context_length_exceeded",
        ),
        None,
        300_123,
        id="openai gpt-5",
    ),
    pytest.param(
        openai_error(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the "
            "messages, 500 in the functions, and 1500 in the completion). Please reduce the length of the messages, "
            "functions, or completion.",
            code="context_length_exceeded",
        ),
        8192,
        7500,
        id="openai with functions",
    ),
    pytest.param(
        openai_error("Your input exceeds the context window of this model."), None, None, id="openai responses"
    ),
    pytest.param(
        openai_error(
            "This model's maximum context length is 8192 tokens. However, your prompt contains at least 9001 input "
            "tokens, which exceeds this limit even without any output tokens.",
            type="BadRequestError",
            param="input_tokens",
            code=400,
        ),
        8192,
        9001,
        id="vllm",
    ),
    pytest.param(
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 "
            "in the messages, 500 in the completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        4096,
        4500,
        id="vllm of old",
    ),
    pytest.param(
        openai_error(
            "You passed 7001 input tokens and requested 1000 output tokens. However, the model's context length is "
            "only 8000 tokens, resulting in a maximum input length of 7000 tokens."
        ),
        8000,
        7001,
        id="vllm passed",
    ),
    pytest.param(
        openai_error(
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 "
            "tokens and your request has 6000 input tokens (4096 > 8192 - 6000)."
        ),
        8192,
        6000,
        id="vllm max_tokens",
    ),
    pytest.param(
        openai_error("The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        8192,
        9000,
        id="vllm decoder",
    ),
    pytest.param(
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 32768 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        32_768,
        None,
        id="sglang",
    ),
    pytest.param(
        openai_error("The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        8192,
        9000,
        id="sglang input",
    ),
    pytest.param(
        {
            "error": {
                "code": 400,
                "message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5000,
                "n_ctx": 4096,
            }
        },
        4096,
        5000,
        id="llama.cpp",
    ),
    pytest.param(openai_error("the request exceeds the available context size"), None, None, id="llama.cpp of old"),
    pytest.param(openai_error("input is larger than the max context size"), None, None, id="llama.cpp larger"),
    pytest.param(
        openai_error("the prompt is longer than the context length currently available to the model"),
        None,
        None,
        id="ollama",
    ),
    pytest.param(openai_error("the input length exceeds the context length"), None, None, id="ollama embedding"),
    pytest.param(
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length"},
        None,
        None,
        id="lm studio",
    ),
    pytest.param(
        openai_error("Trying to keep the first 5000 tokens when context the overflows"), None, None, id="lm studio keep"
    ),
    pytest.param(
        openai_error("litellm.ContextWindowExceededError: the prompt does not fit", code="400"),
        None,
        None,
        id="litellm",
    ),
    pytest.param(
        {
            "error": {
                "message": "This endpoint's maximum context length is 200000 tokens. However, you requested about "
                "250000 tokens (240000 of text input, 10000 in the output).",
                "code": 400,
            }
        },
        200_000,
        240_000,
        id="openrouter",
    ),
    pytest.param(openai_error("Please reduce the length of the messages or completion."), None, None, id="groq"),
    pytest.param(
        openai_error("This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        131_072,
        140_000,
        id="xai",
    ),
    pytest.param({"message": "too many tokens: total tokens 5000"}, None, None, id="cohere"),
    pytest.param(
        openai_error("Please reduce the length. Current length is 9000 while limit is 8192"), 8192, 9000, id="cerebras"
    ),
    pytest.param(
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
            "context length",
            "type": "invalid_request_invalid_args",
            "code": "3051",
        },
        32_768,
        40_000,
        id="mistral",
    ),
    pytest.param(openai_error("prompt token count of 70000 exceeds the limit of 64000"), 64_000, 70_000, id="copilot"),
    pytest.param(openai_error("context window exceeds limit (2013)"), None, None, id="minimax"),
    pytest.param(
        openai_error("Your request exceeded model token limit: 131072 (requested: 140000)"), 131_072, 140_000, id="kimi"
    ),
    pytest.param(openai_error("ValidationException: Input is too long for requested model."), None, None, id="bedrock"),
    pytest.param(openai_error("prompt tokens (9000) exceed model maximum (8192)"), 8192, 9000, id="bedrock mantle"),
    pytest.param(
        openai_error(
            "This model's maximum context length is 8192 tokens, however you requested 10000 tokens (9000 in your "
            "prompt; 1000 for the completion). Please reduce your prompt; or completion length.",
            code="context_length_exceeded",
        ),
        8192,
        9000,
        id="azure",
    ),
    pytest.param(
        openai_error(
            "This model's maximum context length is 8192 tokens. However, your prompt contains 99000 characters (more "
            "than 65536 characters, which is the upper bound for 8192 input tokens).",
            type="BadRequestError",
            param="input_text",
            code=400,
        ),
        8192,
        None,
        id="vllm characters",
    ),
    pytest.param(
        openai_error("max_tokens=9000 cannot be greater than max_model_len=8192. Please request fewer output tokens."),
        8192,
        None,
        id="vllm max_model_len",
    ),
    pytest.param(
        openai_error("input after truncation exceeds maximum context length"), None, None, id="ollama truncated"
    ),
    pytest.param(openai_error("litellm: Context Window exceeded for the model"), None, None, id="litellm words"),
    pytest.param(openai_error("input tokens exceeded the model's maximum"), None, None, id="bedrock exceeded"),
    pytest.param(openai_error("ValidationException: too many input tokens"), None, None, id="bedrock too many"),
    pytest.param(
        openai_error("Malformed input request: expected maxLength: 50000, actual: 60000"), None, None, id="bedrock max"
    ),
    pytest.param(
        {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", "error_type": "x"},
        4096,
        None,
        id="tgi",
    ),
    pytest.param(
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` "
            "tokens and 100 `max_new_tokens`",
            "error_type": "validation",
        },
        4096,
        5000,
        id="tgi joint",
    ),
]


@pytest.mark.parametrize(("body", "window", "prompt"), OPENAI_SHAPES)
async def test_an_overflow_answered_with_400_is_recognised_with_its_numbers(
    body: dict[str, object], window: int | None, prompt: int | None
) -> None:
    error = await refusal_of(error_answer(400, body))

    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.prompt_tokens) == (window, prompt)


@pytest.mark.parametrize(("body", "window", "prompt"), OPENAI_SHAPES)
async def test_an_overflow_told_inside_a_stream_is_recognised_with_its_numbers(
    body: dict[str, object], window: int | None, prompt: int | None
) -> None:
    error = await refusal_of(openai_stream(body if "error" in body else {"error": body}))

    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.prompt_tokens) == (window, prompt)


@pytest.mark.parametrize("status", [413, 422])
async def test_the_same_words_count_under_the_other_statuses_of_overflows(status: int) -> None:
    body = {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"}

    error = await refusal_of(error_answer(status, body))

    assert isinstance(error, ContextOverflow)


ANTHROPIC_SHAPES = [
    (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000),
    (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length",
        200_000,
        199_000,
    ),
    (413, "request_too_large", "Request exceeds the maximum size", None, None),
]


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize(("status", "kind", "message", "window", "prompt"), ANTHROPIC_SHAPES)
async def test_anthropics_overflows_are_recognised(
    status: int, kind: str, message: str, window: int | None, prompt: int | None, *, in_stream: bool
) -> None:
    body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}

    error = await refusal_of(anthropic_stream(body) if in_stream else error_answer(status, body), ANTHROPIC)

    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.prompt_tokens) == (window, prompt)


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize(
    ("message", "window", "prompt"),
    [
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_048_576,
            1_200_000,
        ),
        ("Request payload size exceeds the limit: 20971520 bytes.", None, None),
    ],
)
async def test_geminis_overflow_is_recognised(
    message: str, window: int | None, prompt: int | None, *, in_stream: bool
) -> None:
    body = google_error(400, "INVALID_ARGUMENT", message)
    streamed = Answer([f"data: {json.dumps(body)}\r\n\r\n"], content_type="text/event-stream")

    error = await refusal_of(streamed if in_stream else error_answer(400, body), GEMINI)

    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.prompt_tokens) == (window, prompt)


async def test_numbers_that_cannot_be_true_teach_nothing() -> None:
    error = await refusal_of(error_answer(400, openai_error("This model's maximum context length is 3 tokens.")))

    assert isinstance(error, ContextOverflow)
    assert error.window_tokens is None


@pytest.mark.parametrize("status", [400, 413])
@pytest.mark.parametrize("page", ["", "<html><head><title>413 Request Entity Too Large</title></head></html>"])
async def test_a_refusal_that_says_nothing_is_an_overflow_after_a_nearly_full_prompt_only(
    status: int, page: str
) -> None:
    small_window_model = "gpt-4"

    full = await refusal_of(error_answer(status, page), small_window_model, text="word " * 6000)
    short = await refusal_of(error_answer(status, page), small_window_model)

    assert type(full) is ContextOverflow
    assert type(short) is ModelInvalidRequest


async def test_an_error_never_repeats_the_users_text() -> None:
    secret = "my password is hunter2, and the maximum context length is 8192 tokens"

    error = await refusal_of(error_answer(400, openai_error(secret, code=secret)), text=secret)

    assert "hunter2" not in json.dumps([str(error), getattr(error, "detail", "")])


def google_error(code: int, status: str, message: str, *details: dict[str, object]) -> dict[str, object]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("offline", 32_768),
        ("gpt-4", 8192),
        ("openai:gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("openai:gpt-5-mini", 272_000),
        ("o3-pro", 200_000),
        ("anthropic:claude-sonnet-4-5", 200_000),
        ("bedrock:anthropic.claude-3-haiku", 200_000),
        ("google_genai:gemini-2.5-flash", 1_048_576),
        ("openai:meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("openai:qwen2.5:7b", 32_768),
        ("mistralai:mistral-large-latest", 131_072),
        ("deepseek:deepseek-chat", 131_072),
        ("nobody-knows-me", 8192),
    ],
)
def test_the_longest_known_name_decides(model: str, window: int) -> None:
    assert get_context_limit(model) == window


def test_the_models_own_profile_comes_first() -> None:
    assert get_context_limit("gpt-4o", {"max_input_tokens": 64_000}) == 64_000


@pytest.mark.parametrize("profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": 0}])
def test_a_profile_that_says_nothing_is_passed_over(profile: dict[str, object] | None) -> None:
    assert get_context_limit("gpt-4o", profile) == 128_000
