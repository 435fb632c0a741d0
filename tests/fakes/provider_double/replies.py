"""Answers, and the OpenAI chat-completions wire: one completion as a body, or as server-sent events."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from fakes.provider_double.chat_request import ChatRequest, window_refusal
from fakes.provider_double.counting import texts_of
from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.script import Failure, ScriptedCall, ScriptStep

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
FIRST_CHUNK = {"role": "assistant", "content": "", "refusal": None}


class Ending(Enum):
    """How a response ends: as it should, by a lost connection, or never."""

    COMPLETE = auto()
    RESET = auto()
    HANG = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """A response to be sent: its pieces one by one, `delay_seconds` before each."""

    pieces: tuple[bytes, ...]
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0
    ending: Ending = Ending.COMPLETE


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer before it is put on the wire."""

    id: str
    model: str
    text: str
    calls: tuple[ScriptedCall, ...]
    finish_reason: str
    usage: Json = field(default_factory=dict)
    thinking: str = ""


def json_reply(body: Json, status: int = 200, **headers: str) -> Reply:
    """Return a JSON response."""
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply((encode(body),), status=status, headers=names)


def completion_body(completion: Completion) -> Json:
    """Return the body of an answer that is not streamed."""
    message: Json = {"role": "assistant", "content": completion.text or None, "refusal": None}
    if completion.thinking:
        message["reasoning_content"] = completion.thinking
    if completion.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in completion.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": completion.finish_reason}
    return {**_head(completion, "chat.completion"), "choices": [choice], "usage": completion.usage}


def completion_events(completion: Completion, pieces: int, *, includes_usage: bool) -> tuple[bytes, ...]:
    """Return the events of a streamed answer, the closing `[DONE]` last."""
    deltas: list[Json] = [FIRST_CHUNK]
    deltas += [{"reasoning_content": part} for part in split_text(completion.thinking, pieces)]
    deltas += [{"content": part} for part in split_text(completion.text, pieces)]
    for index, call in enumerate(completion.calls):
        deltas.append({"tool_calls": [{"index": index, **_call(call, "")}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in split_text(call.arguments, 2)
        ]
    extra: Json = {"usage": None} if includes_usage else {}
    events = [_chunk(completion, delta, None, extra) for delta in deltas]
    events.append(_chunk(completion, {}, completion.finish_reason, extra))
    if includes_usage:
        head = _head(completion, "chat.completion.chunk")
        events.append(event({**head, "choices": [], "usage": completion.usage}))
    return (*events, DONE)


def event(data: Json) -> bytes:
    """Return one server-sent event."""
    return b"data: " + encode(data) + b"\n\n"


def encode(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def split_text(text: str, pieces: int) -> list[str]:
    """Cut text into at most `pieces` parts of the same length."""
    if not text:
        return []
    size = max(-(-len(text) // max(pieces, 1)), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _chunk(completion: Completion, delta: Json, finish_reason: str | None, extra: Json) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return event({**_head(completion, "chat.completion.chunk"), "choices": [choice], **extra})


def _head(completion: Completion, kind: str) -> Json:
    return {
        "id": completion.id,
        "object": kind,
        "created": 1_700_000_000,
        "model": completion.model,
        "system_fingerprint": None,
    }


def _call(call: ScriptedCall, arguments: str) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


SUMMARY_TOKENS = 400
"""A summary is at most this long, or 0.6 of what the request allows."""

LINE_CHARACTERS = 110
ECHO_CHARACTERS = 60
_RECORD_LINE = re.compile(r"^\[#(\d+) (\w[^\]\n]*)\] ?(.*)", re.MULTILINE)
_SUMMARY_LINE = re.compile(r"^- (\S.* \[#\d+\])$", re.MULTILINE)
_BROKEN_CALL = ScriptedCall("call_broken", "calculator", '{"expression": "1 + ')


def default_step(request: ChatRequest, *, is_summary: bool) -> ScriptStep:
    """Return the answer for a request nobody wrote a step for: the same one for the same request."""
    return ScriptStep(text=summarise(request) if is_summary else echo(request.messages))


def echo(messages: Sequence[Json]) -> str:
    """Return an answer that shows which message it answers and how many it was shown."""
    asked = next((message for message in reversed(messages) if message["role"] == "user"), None)
    text = " ".join(texts_of(asked)) if asked else ""
    return f"Answer {len(messages)} to: {text[:ECHO_CHARACTERS]}"


def summarise(request: ChatRequest) -> str:
    """Return an honest summary: lines of the record with their positions, evenly chosen, and never too long."""
    record = "\n".join(" ".join(texts_of(message)) for message in request.messages if message["role"] == "user")
    return summary_of(record, request.max_tokens, request.model.counting.count)


def summary_of(record: str, max_tokens: int | None, count: Callable[[str], int]) -> str:
    """Return a summary of the record lines in `record`, whatever wire it came over."""
    lines = _SUMMARY_LINE.findall(record) + [_told(line) for line in _RECORD_LINE.finditer(record)]
    lines = lines or [line[:LINE_CHARACTERS] for line in record.splitlines()]
    room = min(SUMMARY_TOKENS, int(0.6 * (max_tokens or SUMMARY_TOKENS)), count(record) // 4)
    parts = ["## State"]
    used = count(parts[0])
    for line in _evenly(lines, max(room // 40, 1)):
        part = f"- {line}"
        used += count(part) + 1
        if used > room and len(parts) > 1:
            break
        parts.append(part)
    return "\n".join(parts)


def _told(line: re.Match[str]) -> str:
    """Return a line of the record as a summary tells it: what was said and by whom, with its position behind it."""
    return f"{line[2]}: {line[3][:LINE_CHARACTERS].rstrip()} [#{line[1]}]"


def complete(step: ScriptStep, request: ChatRequest, number: int) -> Completion:
    """Return the step as a completion, cut at the request's `max_tokens` as the real one would."""
    step = with_failure(step)
    count = request.model.counting.count
    text, is_cut = limited(step.text, request.max_tokens, count)
    answered = count(text) + sum(count(call.name) + count(call.arguments) for call in step.calls)
    natural = "length" if is_cut else "tool_calls" if step.calls else "stop"
    return Completion(
        id=f"chatcmpl-double-{number}",
        model=request.model.name,
        text=text,
        calls=step.calls,
        thinking=step.thinking,
        finish_reason=step.finish_reason or natural,
        usage={
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": answered,
            "total_tokens": request.prompt_tokens + answered,
        },
    )


def with_failure(step: ScriptStep) -> ScriptStep:
    """Return the step with what a failure inside a whole answer makes of it."""
    match step.failure:
        case Failure.EMPTY:
            return replace(step, text="", calls=())
        case Failure.BAD_TOOL_JSON:
            calls = tuple(replace(call, arguments=call.arguments[:-1]) for call in step.calls)
            return replace(step, calls=calls or (_BROKEN_CALL,))
        case _:
            return step


def limited(text: str, limit: int | None, count: Callable[[str], int]) -> tuple[str, bool]:
    """Return the text cut to `limit` tokens, and whether it had to be cut."""
    if limit is None or len(text) <= limit // 3 or count(text) <= limit:
        return text, False
    shown = text[: len(text) * limit // count(text)]
    while count(shown) > limit:
        shown = shown[: len(shown) * 9 // 10]
    return shown, True


def _evenly(lines: Sequence[str], most: int) -> Sequence[str]:
    if len(lines) <= most:
        return lines
    return [lines[index * len(lines) // most] for index in range(most)]


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
