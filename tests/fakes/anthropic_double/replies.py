"""Answers on Anthropic's wire: as a body, or as server-sent events."""

import json
from dataclasses import dataclass

from fakes.anthropic_double.checks import Refused, blocks_of, too_long
from fakes.anthropic_double.messages_request import MessagesRequest, thinking_blocks
from fakes.anthropic_double.units import CacheUse, texts_of
from fakes.provider_double.json_types import Json
from fakes.provider_double.replies import (
    ECHO_CHARACTERS,
    EVENT_STREAM,
    Ending,
    Reply,
    encode,
    json_reply,
    limited,
    split_text,
    summary_of,
    with_failure,
)
from fakes.provider_double.script import Failure, ScriptedCall, ScriptStep


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """An answer before it is put on the wire. `input_usage` are the fields of `usage` but for the output tokens."""

    id: str
    model: str
    text: str
    calls: tuple[ScriptedCall, ...]
    stop_reason: str
    input_usage: Json
    output_tokens: int
    thinking: tuple[Json, ...] = ()


def answer_body(answer: MessageAnswer) -> Json:
    """Return the body of an answer that is not streamed."""
    content: list[Json] = list(answer.thinking)
    content += [{"type": "text", "text": answer.text}] if answer.text else []
    content += [{**_call(call), "input": _parsed(call.arguments)} for call in answer.calls]
    return _message(answer, content, answer.stop_reason, answer.output_tokens)


def answer_events(answer: MessageAnswer, pieces: int) -> tuple[bytes, ...]:
    """Return the events of a streamed answer, `message_stop` last."""
    events = [event("message_start", message=_message(answer, [], None, 1)), event("ping")]
    blocks = [_thought(block, pieces) for block in answer.thinking]
    if answer.text:
        deltas = [{"type": "text_delta", "text": part} for part in split_text(answer.text, pieces)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in answer.calls:
        parts = [{"type": "input_json_delta", "partial_json": part} for part in ("", *split_text(call.arguments, 2))]
        blocks.append(({**_call(call), "input": {}}, parts))
    for index, (opened, deltas) in enumerate(blocks):
        events.append(event("content_block_start", index=index, content_block=opened))
        events += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(event("content_block_stop", index=index))
    usage = {**answer.input_usage, "output_tokens": answer.output_tokens}
    ended = {"stop_reason": answer.stop_reason, "stop_sequence": None}
    return (*events, event("message_delta", delta=ended, usage=usage), event("message_stop"))


def _thought(block: Json, pieces: int) -> tuple[Json, list[Json]]:
    """Return how a block of thinking is opened, and its deltas."""
    if block["type"] == "redacted_thinking":
        return block, []
    deltas: list[Json] = [
        {"type": "thinking_delta", "thinking": part} for part in split_text(block["thinking"], pieces)
    ]
    signed = {"type": "signature_delta", "signature": block["signature"]}
    return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]


def event(kind: str, **fields: object) -> bytes:
    """Return one named server-sent event."""
    return f"event: {kind}\ndata: ".encode() + encode({"type": kind, **fields}) + b"\n\n"


def _message(answer: MessageAnswer, content: list[Json], stop_reason: str | None, output_tokens: int) -> Json:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {**answer.input_usage, "output_tokens": output_tokens},
    }


def _call(call: ScriptedCall) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _parsed(arguments: str) -> object:
    """The real service sends an object always; what its model wrote badly is an empty one."""
    try:
        parsed: object = json.loads(arguments)
    except ValueError:
        return {}
    return parsed


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
