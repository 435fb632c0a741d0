"""Conversations in Claude's export. A message of the assistant may hold several steps: calls of tools and results."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from throughline.cli.imports.conversation import (
    ForeignConversation,
    ForeignMessage,
    Members,
    Transcript,
    call_of,
    objects_in,
    text_in,
    written_time,
)
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.message import is_blank

FILES = "files and images, which conversations.json only names"
BRANCHES = "messages of other branches (edited or retried)"
WITHOUT_CONTENT = frozenset({"token_budget", "flag"})
"""Blocks in which nobody says anything."""


def conversation_id(conversation: Members) -> str:
    """Return the conversation's id, '' if it has none."""
    return text_in(conversation, "uuid")


def read(conversation: Members) -> ForeignConversation:
    """Return the conversation. Raises InvalidInput if its messages are no list or their parents go in a circle."""
    if not isinstance(conversation.get("chat_messages"), list):
        raise InvalidInput("`chat_messages` is no list.")
    messages = objects_in(conversation, "chat_messages")
    shown = _path(messages, text_in(conversation, "current_leaf_message_uuid"))
    transcript = Transcript()
    for message in shown:
        _read_message(transcript, message)
    on_path = {text_in(message, "uuid") for message in shown}
    for message in messages:
        if text_in(message, "uuid") not in on_path:
            transcript.leave_out(BRANCHES, text_in(message, "uuid"))
    origin: Members = {
        "program": "claude",
        "conversation_id": conversation_id(conversation),
        "created_at": written_time(conversation.get("created_at")),
        "updated_at": written_time(conversation.get("updated_at")),
        "model": text_in(conversation, "model"),
    }
    return ForeignConversation(
        id=conversation_id(conversation),
        title=text_in(conversation, "name"),
        origin=origin,
        messages=tuple(transcript.messages),
        left_out=tuple(transcript.left_out),
    )


def _path(messages: list[Members], leaf: str) -> list[Members]:
    """Return the messages from the first to the leaf, by their parents; without a leaf, to the last message.

    Older exports name no parents: then all messages are one path.
    """
    by_id = {own: message for message in messages if (own := text_in(message, "uuid"))}
    if not any(text_in(message, "parent_message_uuid") in by_id for message in messages):
        return messages
    current = leaf if leaf in by_id else text_in(messages[-1], "uuid")
    path: dict[str, Members] = {}
    while current in by_id:
        if current in path:
            raise InvalidInput(f"the messages go in a circle at {current}.")
        path[current] = by_id[current]
        current = text_in(by_id[current], "parent_message_uuid")
    return list(path.values())[::-1]


def _read_message(transcript: Transcript, message: Members) -> None:
    match text_in(message, "sender"):
        case "human":
            texts = [*_texts(transcript, message), *_attachments(transcript, message)]
            said = "\n\n".join(text for text in texts if not is_blank(text))
            transcript.say(ForeignMessage("user", said, id=text_in(message, "uuid"), created_at=_time(message)))
        case "assistant":
            _read_answer(transcript, message)
        case sender:
            transcript.leave_out(f"messages of the sender `{sender}`", text_in(message, "uuid"))


def _time(message: Members) -> str:
    return written_time(message.get("created_at"))


def _texts(transcript: Transcript, message: Members) -> Iterator[str]:
    """Yield the texts of a user's message: of its blocks, or of `text` in older exports."""
    blocks = objects_in(message, "content")
    if not blocks:
        yield text_in(message, "text")
    for block in blocks:
        kind = text_in(block, "type")
        if kind in {"text", "voice_note"}:
            yield text_in(block, "text")
        elif kind not in WITHOUT_CONTENT:
            transcript.leave_out(f"content of the kind `{kind}`", text_in(message, "uuid"))


def _attachments(transcript: Transcript, message: Members) -> Iterator[str]:
    """Yield the extracted text of attachments. Of what has none a note remains, so that one sees what was sent."""
    for attachment in objects_in(message, "attachments"):
        name, text = text_in(attachment, "file_name"), text_in(attachment, "extracted_content")
        if not text:
            transcript.leave_out(FILES, name)
        yield f"[Attachment: {name}]\n{text}".strip()
    extracted = {text_in(attachment, "file_name") for attachment in objects_in(message, "attachments")}
    for file in objects_in(message, "files"):
        name = text_in(file, "file_name")
        if name not in extracted:
            transcript.leave_out(FILES, name)
            yield f"[File: {name}]"


@dataclass(slots=True)
class _Step:
    """A step of an answer while its blocks are read: text, then calls."""

    texts: list[str] = field(default_factory=list)
    calls: list[JsonObject] = field(default_factory=list)


def _read_answer(transcript: Transcript, message: Members) -> None:
    """Add an answer: a message for each step with its calls, and one for each result."""
    step, blocks = _Step(), objects_in(message, "content")
    if not blocks:
        step.texts.append(text_in(message, "text"))
    for number, block in enumerate(blocks, start=1):
        kind = text_in(block, "type")
        if kind == "tool_result" or (kind in {"text", "thinking"} and step.calls):
            _end_step(transcript, message, step)
            step = _Step()
        if kind == "tool_use":
            step.calls.append(_call(block, f"{text_in(message, 'uuid')}-{number}"))
        elif kind == "text":
            step.texts.append(text_in(block, "text"))
        else:
            _read_other(transcript, message, block)
    _end_step(transcript, message, step)
    for name in _names(message):
        transcript.leave_out(FILES, name)


def _read_other(transcript: Transcript, message: Members, block: Members) -> None:
    match text_in(block, "type"):
        case "thinking":
            transcript.think(text_in(block, "thinking"))
        case "tool_result":
            _read_result(transcript, message, block)
        case kind if kind not in WITHOUT_CONTENT:
            transcript.leave_out(f"content of the kind `{kind}`", text_in(message, "uuid"))
        case _:
            pass


def _names(message: Members) -> list[str]:
    return [text_in(file, "file_name") for part in ("attachments", "files") for file in objects_in(message, part)]


def _end_step(transcript: Transcript, message: Members, step: _Step) -> None:
    """Add a step's message, unless nothing was said in it."""
    text = "\n\n".join(text for text in step.texts if not is_blank(text))
    if text or step.calls:
        said = ForeignMessage(
            "assistant",
            text,
            id=text_in(message, "uuid"),
            calls=tuple(step.calls),
            created_at=_time(message),
            metadata={"model": text_in(message, "model")},
        )
        transcript.say(said)


def _call(block: Members, own_id: str) -> JsonObject:
    """Return a call. Exports before 2025 have no ids of calls: then `own_id` is used."""
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return call_of(text_in(block, "id") or own_id, text_in(block, "name") or "tool", arguments)


def _read_result(transcript: Transcript, message: Members, block: Members) -> None:
    call_id = text_in(block, "tool_use_id") or transcript.awaited
    content = block.get("content")
    if isinstance(content, str):
        text = content
    else:
        text = "\n\n".join(_result_texts(transcript, content, text_in(message, "uuid")))
    message_id, name = text_in(message, "uuid"), text_in(block, "name")
    transcript.answer(
        ForeignMessage("tool", text, id=message_id, call_id=call_id, created_at=_time(message), name=name)
    )


def _result_texts(transcript: Transcript, content: JsonValue, place: str) -> Iterator[str]:
    """Yield the texts of a result: text, and pages that were found with title and address."""
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        text = "\n".join(filter(None, (text_in(part, name) for name in ("title", "url", "text"))))
        if text:
            yield text
        else:
            transcript.leave_out(f"content of the kind `{text_in(part, 'type')}` in results of tools", place)
