"""Recognition of "the prompt is too long for the window" in the errors of providers and local servers.

Three steps: similar errors are excluded, then structured markers are checked, then phrases. Review it at each upgrade
of a provider package; deepagents, LiteLLM, pydantic-ai and pi-mono keep similar lists.
"""

import re
from dataclasses import dataclass

from throughline.llm.provider_error import Failure

MIN_WINDOW = 256
MAX_WINDOW = 20_000_000
PHRASE_STATUSES = frozenset({400, 413, 422})
MARKERS = frozenset({"context_length_exceeded", "exceed_context_size_error", "3051", "request_too_large"})
OTHER_CODES = frozenset({"insufficient_quota", "rate_limit_exceeded", "string_above_max_length", "rate_limit_error"})

NOT_OVERFLOW = re.compile(
    r"rate[ _-]?limit|too many requests|throttl|tokens per (?:min|day)|\btpm\b|\btpd\b|invalid 'user'|\bquota\b"
    r"|expected a string with maximum length",
    re.IGNORECASE,
)
_PHRASES = (
    r"maximum context length",
    r"exceeds? the context window",
    r"context[ _-]?window[ _-]?exceed",
    r"context window exceeds limit",
    r"input tokens exceed the configured limit",
    r"prompt is too long",
    r"input length and `?max_tokens`? exceed context limit",
    r"input token count \(?\d+\)? exceeds the maximum number of tokens",
    r"request payload size exceeds",
    r"too large for model with \d+ maximum context",
    r"input is too long for requested model",
    r"input tokens exceeded",
    r"too many input tokens",
    r"^too many tokens",
    r"expected maxlength",
    r"prompt tokens \(\d+\) exceed model maximum",
    r"longer than the (?:maximum model|model's context) length",
    r"exceeds? the available context size",
    r"is larger than the max context size",
    r"prompt is longer than the context length",
    r"input length exceeds the context length",
    r"exceeds maximum context length",
    r"greater than the context length",
    r"when context the overflows",
    r"reduce the length of the messages",
    r"maximum prompt length is \d+",
    r"current length is \d+ while limit is \d+",
    r"`inputs` tokens \+ `max_new_tokens` must be <=",
    r"`inputs` must have less than \d+ tokens",
    r"prompt token count of \d+ exceeds the limit",
    r"exceeded model token limit",
    r"cannot be greater than max_model_len",
    r"the model's context length is only \d+",
)
PHRASES = re.compile("|".join(_PHRASES), re.IGNORECASE)

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")

_WINDOW = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"maximum context length (?:is|of) (\d+)",
        r"context length is only (\d+)",
        r"(?<!\d)(\d++) maximum context length",
        r"tokens > (\d+) maximum",
        r"exceed context limit: \d+ \+ \d+ > (\d+)",
        r"maximum number of tokens allowed \(?(\d+)",
        r"exceed model maximum \((\d+)\)",
        r"maximum model length of (\d+)",
        r"model's context length \((\d+)",
        r"available context size \((\d+)",
        r"maximum prompt length is (\d+)",
        r"while limit is (\d+)",
        r"must be <= (\d+)",
        r"less than (\d+) tokens",
        r"exceeds the limit of (\d+)",
        r"exceeded model token limit: (\d+)",
        r"max_model_len=(\d+)",
    )
)
_PROMPT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"resulted in (\d+) tokens",
        r"\((\d+) in your prompt",
        r"\((\d+) of text input",
        r"\((\d+) in the messages, (\d+) in the functions",
        r"\((\d+) in the messages",
        r"request has (\d+) input tokens",
        r"given: (\d+) `inputs` tokens",
        r"you passed (\d+) input tokens",
        r"contains (?:at least )?(\d+) (?:input )?tokens",
        r"requested (?:about )?(\d+) tokens",
        r"too long: (\d+) tokens",
        r"exceed context limit: (\d+) \+",
        r"token count \(?(\d+)\)? exceeds",
        r"prompt tokens \((\d+)\) exceed",
        r"prompt \(length (\d+)\)",
        r"(?:input|request) \((\d+) tokens\)",
        r"current length is (\d+)",
        r"prompt token count of (\d+)",
        r"requested: (\d+)",
    )
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The window and the prompt's size that the provider's error named; None for a missing or implausible number."""

    window_tokens: int | None
    prompt_tokens: int | None


def recognise_overflow(failure: Failure) -> Overflow | None:
    """Return the provider's numbers if the failure means that the prompt is too long, else None."""
    if _is_something_else(failure):
        return None
    is_marked = failure.code in MARKERS or failure.type in MARKERS or _is_named_so(failure)
    speaks_of_it = _may_speak(failure) and PHRASES.search(failure.message)
    return _numbers(failure) if is_marked or speaks_of_it else None


def _is_something_else(failure: Failure) -> bool:
    if failure.status in {401, 402, 403, 404, 429} or {failure.code, failure.type} & OTHER_CODES:
        return True
    said = f"{failure.code} {failure.type} {failure.message}"  # Amazon's throttling says "too many tokens, please wait"
    return bool(NOT_OVERFLOW.search(said)) and failure.code not in MARKERS


def _is_named_so(failure: Failure) -> bool:
    # LangChain searches the whole text, so the user's words can turn any error into an overflow, and its Google
    # package gives this class to every client error that mentions a "token limit".
    is_named = "ContextOverflowError" in failure.kinds and "GoogleContextOverflowError" not in failure.kinds
    return is_named and not failure.has_echo


def _may_speak(failure: Failure) -> bool:
    return failure.status in PHRASE_STATUSES or (failure.in_stream and failure.status in {None, 500})


def _numbers(failure: Failure) -> Overflow:
    window = _field(failure, "n_ctx") or _first(_WINDOW, failure.message)
    prompt = _field(failure, "n_prompt_tokens") or _first(_PROMPT, failure.message)
    if window is not None and not MIN_WINDOW <= window <= MAX_WINDOW:
        window = None
    if prompt is not None and not MIN_WINDOW <= prompt <= 100 * MAX_WINDOW:
        prompt = None
    return Overflow(window, prompt)


def _field(failure: Failure, name: str) -> int | None:
    value = failure.body.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    text = _THOUSANDS.sub("", message)
    match = next((found for found in (pattern.search(text) for pattern in patterns) if found), None)
    return None if match is None else sum(int(number[:18]) for number in match.groups())
