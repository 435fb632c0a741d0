"""Threads of LangGraph, whose messages are those of LangChain."""

import json
from collections.abc import Iterator

from throughline.cli.imports.conversation import (
    ForeignConversation,
    ForeignMessage,
    Members,
    Transcript,
    call_of,
    object_in,
    objects_in,
    text_in,
    written_time,
)
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.ports.stored_threads import StoredThread

CALLS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "input_json_delta"})
"""Blocks that repeat what a message has as `tool_calls`."""

REASONING = {"thinking": "thinking", "reasoning": "reasoning"}
"""Blocks with reasoning, and the member with its text."""

ADDRESSES = ("https://", "data:image/")


def read(thread: StoredThread) -> ForeignConversation:
    """Return the thread as a conversation. Its messages get the time of its newest state: they have none."""
    transcript = Transcript(thread.left_out)
    written = written_time(thread.written_at)
    for number, message in enumerate(thread.messages, start=1):
        _read_message(transcript, dict(message), text_in(message, "id") or f"message {number}", written)
    origin: Members = {
        "program": "langgraph",
        "thread_id": thread.id,
        "checkpoint_id": thread.checkpoint_id,
        "updated_at": written,
    }
    messages, left_out = tuple(transcript.messages), tuple(transcript.left_out)
    return ForeignConversation(id=thread.id, title="", origin=origin, messages=messages, left_out=left_out)


def _read_message(transcript: Transcript, message: Members, place: str, written: str) -> None:
    said_id, name = text_in(message, "id"), text_in(message, "name")
    kind = _kind(message)
    if kind not in {"human", "ai", "tool"}:
        transcript.leave_out(f"messages of the kind `{kind}`", place)
        return
    content = _content(transcript, message.get("content"), place)
    match kind:
        case "human":
            transcript.say(ForeignMessage("user", content, id=said_id, author=name, created_at=written))
        case "ai":
            model = text_in(object_in(message, "response_metadata"), "model_name")
            calls = tuple(_calls(message))
            metadata: Members = {"model": model}
            transcript.say(
                ForeignMessage("assistant", content, id=said_id, calls=calls, created_at=written, metadata=metadata)
            )
        case _:
            if message.get("artifact") is not None:
                transcript.leave_out("artifacts of tools", place)
            call_id = text_in(message, "tool_call_id")
            transcript.answer(
                ForeignMessage("tool", content, id=said_id, call_id=call_id, name=name, created_at=written)
            )


def _kind(message: Members) -> str:
    """Return the kind of a message; a ChatMessage has that of its role."""
    kind = text_in(message, "type")
    return {"user": "human", "assistant": "ai"}.get(text_in(message, "role"), kind) if kind == "chat" else kind


def _calls(message: Members) -> Iterator[JsonObject]:
    """Yield the calls of a message: LangChain's, those whose arguments are no JSON, or OpenAI's in older messages."""
    for number, call in enumerate(objects_in(message, "tool_calls")):
        given = object_in(call, "function") or call
        arguments = given.get("args", given.get("arguments"))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        yield call_of(text_in(call, "id") or f"call-{number}", text_in(given, "name") or "tool", text)
    for call in objects_in(message, "invalid_tool_calls"):
        if text_in(call, "id"):
            yield call_of(text_in(call, "id"), text_in(call, "name") or "tool", text_in(call, "args"))
    if not message.get("tool_calls") and objects_in(object_in(message, "additional_kwargs"), "tool_calls"):
        yield from _calls(object_in(message, "additional_kwargs"))


def _content(transcript: Transcript, content: JsonValue, place: str) -> JsonValue:
    """Return a message's content: blocks if there is an image among them, else one text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    blocks = [block for part in content if (block := _block(transcript, part, place)) is not None]
    if any(block["type"] == "image" for block in blocks):
        return [dict(block) for block in blocks]
    return "\n".join(text_in(block, "text") for block in blocks)


def _block(transcript: Transcript, part: JsonValue, place: str) -> JsonObject | None:
    """Return a text or an image, None for anything else; reasoning is kept for the message."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    members: Members = part if isinstance(part, dict) else {}
    kind = text_in(members, "type")
    if kind in REASONING:
        transcript.think(_reasoning(members, REASONING[kind]))
        return None
    if text := text_in(members, "text"):
        return {"type": "text", "text": text}
    if (address := _image(members)).startswith(ADDRESSES):
        return {"type": "image", "url": address}
    if kind not in CALLS and kind != "text":
        transcript.leave_out(f"content of the kind `{kind or 'unknown'}`", place)
    return None


def _reasoning(block: Members, member: str) -> str:
    return text_in(block, member) or "\n\n".join(text_in(part, "text") for part in objects_in(block, "summary"))


def _image(block: Members) -> str:
    """Return the address of an image in one of the forms that LangChain takes, '' if there is none."""
    match block:
        case {"type": "image_url", "image_url": str(url) | {"url": str(url)}}:
            return url
        case {"type": "image", "url": str(url)} | {"type": "image", "source": {"url": str(url)}}:
            return url
        case {"type": "image", "source": {"data": str(data), "media_type": str(kind)}}:
            return f"data:{kind};base64,{data}"
        case {"type": "image", "mime_type": str(kind)}:
            return f"data:{kind};base64,{text_in(block, 'data') or text_in(block, 'base64')}"
        case _:
            return ""
