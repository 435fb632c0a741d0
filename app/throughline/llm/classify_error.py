"""Classification of provider errors: turns any exception of a provider's package into one of ours.

A prompt that is too long is recognised first, then a known refusal; otherwise the first rule that matches decides. The
texts are ours: they may name the model, the status and the provider's code. They never contain the user's text, a key,
or the provider's own message, which the error carries apart.
"""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from throughline.domain import errors
from throughline.domain.errors import (
    ContextOverflow,
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRefused,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    ThroughlineError,
)
from throughline.llm.bounded_http import ResponseRefused
from throughline.llm.provider_error import ProviderFailure, Sent, clean_message, error_chain, read_failure

ANSWERS = Path(__file__).with_name("known_refusals.yaml")


@dataclass(frozen=True, slots=True)
class KnownRefusal:
    """A refusal that operators meet when they connect a model. `known_refusals.yaml` explains the fields."""

    name: str
    server: str
    says: str
    pattern: re.Pattern[str]
    statuses: frozenset[int]
    kind: type[ModelRejected] | type[ModelUnavailable]
    cause: str
    remedy: str
    source: str

    def fits(self, failure: ProviderFailure) -> bool:
        """Return whether the failure is this refusal. An error inside a stream has no status of its own."""
        if not self.statuses:
            return failure.status is None and bool(self.pattern.search(failure.connection))
        is_status_unknown = failure.in_stream and failure.status is None and bool(failure.message)
        return (failure.status in self.statuses or is_status_unknown) and bool(self.pattern.search(failure.message))


@dataclass(frozen=True, slots=True)
class KnownAnswers:
    """What `known_refusals.yaml` holds: patterns of a prompt that is too long, and of its numbers, and refusals."""

    phrases: re.Pattern[str]
    window_tokens: tuple[re.Pattern[str], ...]
    prompt_tokens: tuple[re.Pattern[str], ...]
    refusals: tuple[KnownRefusal, ...]


@cache
def known_answers() -> KnownAnswers:
    """Return the content of the file, read at the first error."""
    read = yaml.safe_load(ANSWERS.read_text(encoding="utf-8"))
    overflow = read["overflow"]
    return KnownAnswers(
        _ignoring_case("|".join(overflow["phrases"])),
        tuple(map(_ignoring_case, overflow["window_tokens"])),
        tuple(map(_ignoring_case, overflow["prompt_tokens"])),
        tuple(_refusal(entry) for entry in read["refusals"]),
    )


def _refusal(entry: Mapping[str, Any]) -> KnownRefusal:
    pattern, statuses, kind = _ignoring_case(entry["pattern"]), frozenset(entry["statuses"]), entry["kind"]
    return KnownRefusal(**{**entry, "pattern": pattern, "statuses": statuses, "kind": getattr(errors, kind)})


def _ignoring_case(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# Recognition of "the prompt is too long for the window": similar errors are excluded, then structured markers are
# checked, then phrases.

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
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")


@dataclass(frozen=True, slots=True)
class Overflow:
    """The window and the prompt's size that the provider's error named; None for a missing or implausible number."""

    window_tokens: int | None
    prompt_tokens: int | None


def recognise_overflow(failure: ProviderFailure) -> Overflow | None:
    """Return the provider's numbers if the failure means that the prompt is too long, else None."""
    if _is_something_else(failure):
        return None
    is_marked = failure.code in MARKERS or failure.type in MARKERS or _is_named_so(failure)
    speaks_of_it = _may_speak(failure) and known_answers().phrases.search(failure.message)
    return _numbers(failure) if is_marked or speaks_of_it else None


def _is_something_else(failure: ProviderFailure) -> bool:
    if failure.status in {401, 402, 403, 404, 429} or {failure.code, failure.type} & OTHER_CODES:
        return True
    said = f"{failure.code} {failure.type} {failure.message}"  # Amazon's throttling says "too many tokens, please wait"
    return bool(NOT_OVERFLOW.search(said)) and failure.code not in MARKERS


def _is_named_so(failure: ProviderFailure) -> bool:
    # LangChain searches the whole text, so the user's words can turn any error into an overflow, and its Google
    # package gives this class to every client error that mentions a "token limit".
    is_named = "ContextOverflowError" in failure.kinds and "GoogleContextOverflowError" not in failure.kinds
    return is_named and not failure.has_echo


def _may_speak(failure: ProviderFailure) -> bool:
    return failure.status in PHRASE_STATUSES or (failure.in_stream and failure.status in {None, 500})


def _numbers(failure: ProviderFailure) -> Overflow:
    window = _field(failure, "n_ctx") or _first(known_answers().window_tokens, failure.message)
    prompt = _field(failure, "n_prompt_tokens") or _first(known_answers().prompt_tokens, failure.message)
    if window is not None and not MIN_WINDOW <= window <= MAX_WINDOW:
        window = None
    if prompt is not None and not MIN_WINDOW <= prompt <= 100 * MAX_WINDOW:
        prompt = None
    return Overflow(window, prompt)


def _field(failure: ProviderFailure, name: str) -> int | None:
    value = failure.body.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    text = _THOUSANDS.sub("", message)
    match = next((found for found in (pattern.search(text) for pattern in patterns) if found), None)
    return None if match is None else sum(int(number[:18]) for number in match.groups())


def find_refusal(failure: ProviderFailure) -> KnownRefusal | None:
    """Return the first known refusal that matches the failure, None if none does."""
    return next((known for known in known_answers().refusals if known.fits(failure)), None)


SUSPECT_FILL = 0.8
"""Share of the window above which an unexplained 400 or 413 counts as an overflow.

Unexplained means without a body, or with a proxy's page.
"""

QUOTA_CODES = frozenset({
    *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"),
    *("insufficient_balance", "insufficient_user_quota"),
})
QUOTA_WORDS = re.compile(r"credit balance is too low|insufficient balance|insufficient credits", re.IGNORECASE)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
GOOGLE_DAILY_QUOTA = re.compile(r"per_?day", re.IGNORECASE)
RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "too_many_requests", "throttlingexception"})
AUTH_CODES = frozenset({"invalid_api_key", "authentication_error", "permission_error", "api_key_invalid"})
AUTH_WORDS = re.compile(r"\bAPI key (?:not valid|expired|not found)", re.IGNORECASE)
REFUSED_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
OVERLOADED_CODES = frozenset({"overloaded_error", "server_overloaded", "engine_overloaded"})

TIMEOUT_CLASSES = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError", "ModelTimeoutError"})
CONNECTION_CLASSES = frozenset({
    *("APIConnectionError", "TransportError", "StreamError", "ModelConnectionError", "OSError", "IncompleteReadError"),
})


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The model call that failed. Token counts are our own estimates, 0 if unknown.

    `sent` holds the texts and keys that must not appear in an error's message.
    """

    model: str = "the model"
    prompt_tokens: int = 0
    window_tokens: int = 0
    sent: Sent = field(default_factory=Sent, repr=False)


def classify(error: BaseException, call: FailedCall | None = None) -> ThroughlineError:
    """Return our exception for `error`, with the provider's cleaned message; one of ours is returned unchanged."""
    call = call or FailedCall()
    if isinstance(error, ThroughlineError):
        return error
    for link in error_chain(error):
        if isinstance(link, ResponseRefused):
            return link.kind(f"{call.model}: {link.detail}")
    failure = read_failure(error)
    ours = _overflow(failure, call) or _known(failure, call.model) or _by_rule(failure, call.model)
    ours.provider_message = clean_message(failure.message, call.sent)
    return ours


def _overflow(failure: ProviderFailure, call: FailedCall) -> ContextOverflow | None:
    found = recognise_overflow(failure)
    if found is not None:
        return ContextOverflow(
            f"{call.model}: the prompt is longer than the model's window{_label(failure)}",
            window_tokens=found.window_tokens,
            prompt_tokens=found.prompt_tokens,
        )
    is_silent = failure.status in {400, 413} and not (failure.message or failure.code or failure.type)
    if is_silent and call.window_tokens and call.prompt_tokens > SUSPECT_FILL * call.window_tokens:
        return ContextOverflow(f"{call.model}: a nearly full prompt was refused without a reason{_label(failure)}")
    return None


def _known(failure: ProviderFailure, model: str) -> ThroughlineError | None:
    known = find_refusal(failure)
    return None if known is None else _error(known.kind, f"{model}: {known.cause}. {known.remedy}", failure)


def _by_rule(failure: ProviderFailure, model: str) -> ThroughlineError:
    rule = next(rule for rule in RULES if rule.fits(failure))
    return _error(rule.kind, f"{model}: {rule.text}", failure)


def _error(
    kind: type[ModelRejected] | type[ModelUnavailable], text: str, failure: ProviderFailure
) -> ModelRejected | ModelUnavailable:
    detail = f"{text}{_label(failure)}"
    if issubclass(kind, ModelUnavailable):
        return kind(detail, delay_seconds=failure.retry_after_seconds)
    return kind(detail)


def _is_google_daily_quota(failure: ProviderFailure) -> bool:
    # Google's sentence is the same for the quota of a minute and of a day; only the quota's id tells them apart.
    return failure.status == HTTPStatus.TOO_MANY_REQUESTS and bool(
        GOOGLE_DAILY_QUOTA.search(str(failure.body.get("details", "")))
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """The error for failures with one of these statuses, names (the provider's code or type), words or classes.

    The `classes` of the exception count only without a status. `test` recognises further failures.
    """

    kind: type[ModelRejected] | type[ModelUnavailable]
    text: str
    statuses: Container[int | None] = ()
    names: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None
    classes: frozenset[str] = frozenset()
    test: Callable[[ProviderFailure], bool] = lambda _: False

    def fits(self, failure: ProviderFailure) -> bool:
        """Return whether the failure is one of these."""
        return (
            failure.status in self.statuses
            or not self.names.isdisjoint(_names(failure))
            or (self.words is not None and bool(self.words.search(failure.message)))
            or (failure.status is None and not self.classes.isdisjoint(failure.kinds))
            or self.test(failure)
        )


RULES = (
    Rule(
        ModelQuotaExhausted,
        "the provider account has no credit or quota left; check its billing",
        {402},
        QUOTA_CODES,
        QUOTA_WORDS,
        test=_is_google_daily_quota,
    ),
    Rule(ModelRateLimited, "the provider limits the rate of requests; try again later", {429}, RATE_CODES),
    Rule(
        ModelAuthenticationFailed,
        "the provider does not accept the key for this model; check it",
        {401, 403},
        AUTH_CODES,
        AUTH_WORDS,
    ),
    Rule(ModelRefused, "the provider's content filter declined this request", names=REFUSED_CODES),
    Rule(ModelTimeout, "the provider did not answer in time; try again", {408, 504}, classes=TIMEOUT_CLASSES),
    Rule(ModelUnavailable, "the provider is overloaded; try again later", {409, 425}, OVERLOADED_CODES),
    Rule(ModelInvalidRequest, "the provider does not know this model or address", {404}),
    Rule(ModelInvalidRequest, "the provider calls the request invalid", range(400, 500)),
    Rule(ModelUnavailable, "the provider failed; try again later", range(500, 600)),
    Rule(ModelUnavailable, "the provider failed during its answer; try again", test=lambda failure: failure.in_stream),
    Rule(ModelUnavailable, "the connection to the provider failed; try again", classes=CONNECTION_CLASSES),
    Rule(ModelUnavailable, "the provider sent an answer that cannot be read; try again", test=lambda _: True),
)
"""The rules in the order in which they are tried; the last one fits any failure."""


def _names(failure: ProviderFailure) -> set[str]:
    return {failure.code.lower(), failure.type.lower()}


def _label(failure: ProviderFailure) -> str:
    """Return the status and the provider's code in brackets; a code that is no plain identifier is left out."""
    names = (name for name in (failure.code, failure.type) if IDENTIFIER.fullmatch(name))
    parts = [*([str(failure.status)] if failure.status else []), *[next(names, "")]]
    label = " ".join(part for part in parts if part)
    return f" ({label})" if label else ""
