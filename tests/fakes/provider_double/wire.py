"""The OpenAI chat-completions wire: one completion as a body, or as server-sent events."""

import json
from dataclasses import dataclass, field
from enum import Enum, auto

from fakes.provider_double.json_types import Json
from fakes.provider_double.script import ScriptedCall

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
