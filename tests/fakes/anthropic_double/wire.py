"""Anthropic's wire: one answer as a body, or as server-sent events."""

import json
from dataclasses import dataclass

from fakes.provider_double.json_types import Json
from fakes.provider_double.script import ScriptedCall
from fakes.provider_double.wire import encode, split_text


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
