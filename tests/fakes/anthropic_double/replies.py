"""A step on Anthropic's wire, healthy or not."""

from fakes.anthropic_double.cache import CacheUse
from fakes.anthropic_double.check_messages import blocks_of
from fakes.anthropic_double.messages_request import MessagesRequest
from fakes.anthropic_double.refusals import Refused, too_long
from fakes.anthropic_double.thinking import thinking_blocks
from fakes.anthropic_double.units import texts_of
from fakes.anthropic_double.wire import MessageAnswer, answer_body, answer_events, event
from fakes.provider_double.answers import ECHO_CHARACTERS, limited, summary_of, with_failure
from fakes.provider_double.script import Failure, ScriptStep
from fakes.provider_double.wire import EVENT_STREAM, Ending, Reply, encode, json_reply

_HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to the proxy.</body></html>"
_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase "
    "credits."
)
_RATE = (
    "This request would exceed the rate limit for your organization of 30,000 input tokens per minute. For details, "
    "refer to: https://docs.anthropic.com/en/api/rate-limits. Please reduce the prompt length or try again later."
)
_OVERLOADED = Refused("Overloaded", status=529, type="overloaded_error")
_REFUSALS = {
    Failure.QUOTA: Refused(_CREDIT),
    Failure.SERVER_ERROR: Refused("Internal server error", status=500, type="api_error"),
    Failure.OVERLOADED: _OVERLOADED,
}


def default_step(request: MessagesRequest, *, is_summary: bool) -> ScriptStep:
    """Return the answer for a request nobody wrote a step for: the same one for the same request."""
    messages = request.body["messages"]
    if is_summary:
        record = "\n".join(text for message in messages for text in texts_of(blocks_of(message)))
        return ScriptStep(text=summary_of(record, request.max_tokens, request.model.counting.count))
    asked = next((texts for message in reversed(messages) if (texts := list(texts_of(blocks_of(message))))), [])
    return ScriptStep(text=f"Answer {len(messages)} to: {' '.join(asked)[:ECHO_CHARACTERS]}")


def refusal_reply(refused: Refused) -> Reply:
    """Return a refusal as Anthropic sends it."""
    return json_reply(refused.body(), refused.status)


def step_reply(step: ScriptStep, request: MessagesRequest, use: CacheUse, number: int) -> Reply:
    """Return what is sent for `step`."""
    failed = _failed_at_once(step, request)
    if failed is not None:
        return failed
    answer = _answer(step, request, use, number)
    if not request.is_stream:
        return _body(step, answer)
    return _stream_of(step, answer_events(answer, step.pieces))


def _answer(step: ScriptStep, request: MessagesRequest, use: CacheUse, number: int) -> MessageAnswer:
    step = with_failure(step)
    count = request.model.counting.count
    text, is_cut = limited(step.text, request.max_tokens, count)
    natural = "max_tokens" if is_cut else "tool_use" if step.calls else "end_turn"
    return MessageAnswer(
        id=f"msg_double_{number}",
        model=request.model.name,
        text=text,
        calls=step.calls,
        thinking=tuple(thinking_blocks(request.model.name, step.thinking, step.redacted)),
        stop_reason=step.finish_reason or natural,
        input_usage={
            "input_tokens": request.prompt_tokens - use.read - use.written,
            "cache_creation_input_tokens": use.written,
            "cache_read_input_tokens": use.read,
        },
        output_tokens=count(text) + sum(count(call.name) + count(call.arguments) for call in step.calls),
    )


def _failed_at_once(step: ScriptStep, request: MessagesRequest) -> Reply | None:
    """Return the reply of a request that fails before any answer, None for all other steps."""
    match step.failure:
        case Failure.RATE_LIMITED:
            refused = Refused(_RATE, status=429, type="rate_limit_error")
            headers = {"retry_after": step.retry_after} if step.retry_after else {}
            return json_reply(refused.body(), refused.status, **headers)
        case Failure.CONTEXT_LENGTH:
            return refusal_reply(too_long(request.prompt_tokens, request.model.window_tokens))
        case Failure.HTML:
            return Reply((_HTML,), content_type="text/html; charset=utf-8")
        case Failure.HANG:
            return Reply((), ending=Ending.HANG)
        case _:
            refusal = _REFUSALS.get(step.failure) if step.failure else None
            return None if refusal is None else refusal_reply(refusal)


def _body(step: ScriptStep, answer: MessageAnswer) -> Reply:
    """Return an answer that is not streamed; what breaks a stream breaks its body in the middle."""
    if step.failure is Failure.ERROR_IN_STREAM:
        return refusal_reply(_OVERLOADED)
    body = encode(answer_body(answer))
    endings = {Failure.RESET: Ending.RESET, Failure.CLEAN_CUT: Ending.COMPLETE, Failure.HANG_IN_ANSWER: Ending.HANG}
    if step.failure in endings:
        return Reply((body[: len(body) // 2],), ending=endings[step.failure])
    return Reply((body,), delay_seconds=step.delay_seconds)


def _stream_of(step: ScriptStep, pieces: tuple[bytes, ...]) -> Reply:
    half = pieces[: max(len(pieces) // 2, 1)]
    match step.failure:
        case Failure.RESET:
            return _stream(step, half, Ending.RESET)
        case Failure.CLEAN_CUT:
            return _stream(step, half)
        case Failure.HANG_IN_ANSWER:
            return _stream(step, half, Ending.HANG)
        case Failure.ERROR_IN_STREAM:
            return _stream(step, (*half, event("error", error=_OVERLOADED.body()["error"])))
        case _:
            return _stream(step, pieces)


def _stream(step: ScriptStep, pieces: tuple[bytes, ...], ending: Ending = Ending.COMPLETE) -> Reply:
    return Reply(pieces, content_type=EVENT_STREAM, delay_seconds=step.delay_seconds, ending=ending)
