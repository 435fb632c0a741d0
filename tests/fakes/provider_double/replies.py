"""A step on the wire, healthy or not."""

from fakes.provider_double.answers import complete
from fakes.provider_double.chat_request import ChatRequest, window_refusal
from fakes.provider_double.refusals import Refused
from fakes.provider_double.script import Failure, ScriptStep
from fakes.provider_double.wire import (
    DONE,
    EVENT_STREAM,
    Completion,
    Ending,
    Reply,
    completion_body,
    completion_events,
    encode,
    event,
    json_reply,
)

_HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to the proxy.</body></html>"
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this "
    "error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors."
)
_BROKEN = "The server had an error while processing your request. Sorry about that!"
_REFUSALS = {
    Failure.QUOTA: Refused(_QUOTA, status=429, type="insufficient_quota", code="insufficient_quota"),
    Failure.SERVER_ERROR: Refused(_BROKEN, status=500, type="server_error"),
    Failure.OVERLOADED: Refused("Overloaded", status=529, type="overloaded_error"),
}


def refusal_reply(refused: Refused) -> Reply:
    """Return a refusal as OpenAI sends it, or as the server does whose body it carries."""
    if isinstance(refused.raw, str):
        return Reply((refused.raw.encode(),), status=refused.status, content_type="text/plain; charset=utf-8")
    return json_reply(refused.body(), refused.status)


def step_reply(step: ScriptStep, request: ChatRequest, number: int) -> Reply:
    """Return what is sent for `step`."""
    failed = _failed_at_once(step, request)
    if failed is not None:
        return failed
    completion = complete(step, request, number)
    if not request.is_stream:
        return _body(step, completion)
    pieces = completion_events(completion, step.pieces, includes_usage=request.includes_usage)
    return _broken_stream(step, pieces)


def _failed_at_once(step: ScriptStep, request: ChatRequest) -> Reply | None:
    """Return the reply of a request that fails before any answer, None for all other steps."""
    if step.refused is not None:
        return refusal_reply(step.refused)
    match step.failure:
        case Failure.RATE_LIMITED:
            return _rate_limited(step, request)
        case Failure.CONTEXT_LENGTH:
            return refusal_reply(window_refusal(request))
        case Failure.HTML:
            return Reply((_HTML,), content_type="text/html; charset=utf-8")
        case Failure.HANG:
            return Reply((), ending=Ending.HANG)
        case _:
            refused = _REFUSALS.get(step.failure) if step.failure else None
            return None if refused is None else refusal_reply(refused)


def _rate_limited(step: ScriptStep, request: ChatRequest) -> Reply:
    refused = Refused(
        f"Rate limit reached for {request.model.name} in organization org-double on tokens per min (TPM): Limit 30000, "
        f"Used 29000, Requested {request.prompt_tokens}. Please try again in {step.retry_after}s. Visit "
        "https://platform.openai.com/account/rate-limits to learn more.",
        status=429,
        type="tokens",
        code="rate_limit_exceeded",
    )
    headers = {"retry_after": step.retry_after} if step.retry_after else {}
    return json_reply(refused.body(), refused.status, **headers)


def _body(step: ScriptStep, completion: Completion) -> Reply:
    """Return an answer that is not streamed; what breaks a stream breaks its body in the middle."""
    if step.failure is Failure.ERROR_IN_STREAM:
        return refusal_reply(Refused(_BROKEN, status=500, type="server_error"))
    body = encode(completion_body(completion))
    half = body[: len(body) // 2]
    match step.failure:
        case Failure.RESET:
            return Reply((half,), ending=Ending.RESET)
        case Failure.CLEAN_CUT:
            return Reply((half,))
        case Failure.HANG_IN_ANSWER:
            return Reply((half,), ending=Ending.HANG)
        case _:
            return Reply((body,), delay_seconds=step.delay_seconds)


def _broken_stream(step: ScriptStep, pieces: tuple[bytes, ...]) -> Reply:
    half = pieces[: max(len(pieces) // 2, 1)]
    match step.failure:
        case Failure.RESET:
            return _stream(step, half, Ending.RESET)
        case Failure.CLEAN_CUT:
            return _stream(step, half)
        case Failure.HANG_IN_ANSWER:
            return _stream(step, half, Ending.HANG)
        case Failure.ERROR_IN_STREAM:
            return _stream(step, (*half, event(Refused(_BROKEN, type="server_error").body()), DONE))
        case _:
            return _stream(step, pieces)


def _stream(step: ScriptStep, pieces: tuple[bytes, ...], ending: Ending = Ending.COMPLETE) -> Reply:
    return Reply(pieces, content_type=EVENT_STREAM, delay_seconds=step.delay_seconds, ending=ending)
