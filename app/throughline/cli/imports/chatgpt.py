"""Conversations in ChatGPT's export. The messages are a tree, of which the path to `current_node` is what was shown."""

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
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.message import is_blank

ALL = "all"
"""The recipient of an assistant's message to the user; of a tool call it is the tool."""

CONTEXT = {"user_editable_context": "custom instructions", "model_editable_context": "what ChatGPT remembers"}
TEXTS = ("text", "result", "output_str", "content")
"""Members with the text of contents that have no parts: code, outputs, web pages, quotations."""

SPOKEN = frozenset({"text", "multimodal_text", "code"})
IMAGES = "images and other files, which conversations.json only names"
BRANCHES = "messages of other branches (edited or regenerated)"


def conversation_id(conversation: Members) -> str:
    """Return the conversation's id, '' if it has none."""
    return text_in(conversation, "conversation_id") or text_in(conversation, "id")


def read(conversation: Members) -> ForeignConversation:
    """Return the conversation as it was last shown. Raises InvalidInput if its tree cannot be followed."""
    nodes = conversation.get("mapping")
    if not isinstance(nodes, dict):
        raise InvalidInput("`mapping` is no object.")
    path = _path(nodes, text_in(conversation, "current_node"))
    transcript = Transcript()
    for message in filter(None, (_message(nodes, node_id) for node_id in path)):
        _read_message(transcript, message)
    on_path = set(path)
    for left in (_message(nodes, node_id) for node_id in nodes if node_id not in on_path):
        if _role(left) in {"user", "assistant"} and _has_text(left):
            transcript.leave_out(BRANCHES, text_in(left, "id"))
    origin: Members = {
        "program": "chatgpt",
        "conversation_id": conversation_id(conversation),
        "created_at": written_time(conversation.get("create_time")),
        "updated_at": written_time(conversation.get("update_time")),
        "model": text_in(conversation, "default_model_slug"),
        "gizmo_id": text_in(conversation, "gizmo_id"),
    }
    return ForeignConversation(
        id=conversation_id(conversation),
        title=text_in(conversation, "title"),
        origin=origin,
        messages=tuple(transcript.messages),
        left_out=tuple(transcript.left_out),
    )


def _path(nodes: Members, current: str) -> list[str]:
    """Return the ids of the nodes from the root to the current one; without one, to the newest message."""
    if current not in nodes:
        current = max(nodes, key=lambda node_id: _seconds(_message(nodes, node_id)), default="")
    path: dict[str, None] = {}
    while current in nodes:
        if current in path:
            raise InvalidInput(f"the tree goes in a circle at {current}.")
        path[current] = None
        node = nodes[current]
        current = text_in(node, "parent") if isinstance(node, dict) else ""
    return list(path)[::-1]


def _message(nodes: Members, node_id: str) -> Members:
    """Return the message of a node, an empty object if it has none."""
    node = nodes[node_id]
    return object_in(node, "message") if isinstance(node, dict) else {}


def _seconds(message: Members) -> float:
    written = message.get("create_time")
    return written if isinstance(written, int | float) else 0.0


def _role(message: Members) -> str:
    return text_in(object_in(message, "author"), "role")


def _has_text(message: Members) -> bool:
    return any(not is_blank(piece) for piece in _pieces(Transcript(), object_in(message, "content"), ""))


def _read_message(transcript: Transcript, message: Members) -> None:
    content, metadata = object_in(message, "content"), object_in(message, "metadata")
    message_id, kind, role = text_in(message, "id"), text_in(content, "content_type"), _role(message)
    hidden = _hidden_kind(role, kind, metadata)
    if hidden:
        if kind in CONTEXT or _has_text(message):
            transcript.leave_out(hidden, message_id)
        return
    if kind == "thoughts":
        for thought in objects_in(content, "thoughts"):
            transcript.think("\n".join(filter(None, (text_in(thought, "summary"), text_in(thought, "content")))))
        return
    pieces = [*_pieces(transcript, content, message_id), *_attachments(transcript, metadata)]
    if not pieces and kind not in SPOKEN and role != "tool":
        transcript.leave_out(f"content of the kind `{kind}`", message_id)
        return
    _add(transcript, message, "\n".join(pieces))


def _hidden_kind(role: str, kind: str, metadata: Members) -> str:
    """Return why a message is left out, '' if it is not."""
    if kind in CONTEXT:
        return CONTEXT[kind]
    if role == "system":
        return "system messages"
    if metadata.get("is_visually_hidden_from_conversation") is True:
        return "messages that ChatGPT did not show"
    if kind == "reasoning_recap":
        return "notes about the time of reasoning"
    return "" if role in {"user", "assistant", "tool"} else "messages of unknown roles"


def _add(transcript: Transcript, message: Members, text: str) -> None:
    """Add a message that was shown: a user's, an assistant's to the user or to a tool, or a tool's."""
    message_id, recipient = text_in(message, "id"), text_in(message, "recipient") or ALL
    written = written_time(message.get("create_time"))
    match _role(message):
        case "user":
            transcript.say(ForeignMessage("user", text, id=message_id, created_at=written))
        case "assistant":
            model = text_in(object_in(message, "metadata"), "model_slug")
            is_call = recipient != ALL
            calls = (call_of(message_id or f"call-{len(transcript.messages)}", recipient, _arguments(text)),)
            said = ForeignMessage(
                "assistant",
                "" if is_call else text,
                id=message_id,
                calls=calls if is_call else (),
                created_at=written,
                metadata={"model": model},
            )
            transcript.say(said)
        case _:
            tool = text_in(object_in(message, "author"), "name")
            call_id = transcript.open_call(tool)
            transcript.answer(ForeignMessage("tool", text, id=message_id, call_id=call_id, created_at=written))


def _arguments(text: str) -> str:
    """Return what was sent to a tool as JSON text of an object: code is put into one."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else json.dumps({"input": text}, ensure_ascii=False)


def _pieces(transcript: Transcript, content: Members, place: str) -> Iterator[str]:
    """Yield the texts of a content. Of what is only named a note remains, so that one sees what was spoken about."""
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else [_text_of(content)]:
        if isinstance(part, str):
            yield from [part] if part else []
        elif isinstance(part, dict):
            yield from _of_part(transcript, part, place)


def _attachments(transcript: Transcript, metadata: Members) -> Iterator[str]:
    """Yield a note for each file that the user attached; images are among the parts."""
    for file in objects_in(metadata, "attachments"):
        name = text_in(file, "name") or text_in(file, "id")
        if not (text_in(file, "mime_type") or text_in(file, "mimeType")).startswith("image/"):
            transcript.leave_out(IMAGES, name)
            yield f"[File: {name}]"


def _text_of(members: Members) -> JsonValue:
    return next(filter(None, (text_in(members, name) for name in TEXTS)), "")


def _of_part(transcript: Transcript, part: Members, place: str) -> Iterator[str]:
    text = _text_of(part)
    asset = text_in(part, "asset_pointer") or text_in(object_in(part, "audio_asset_pointer"), "asset_pointer")
    if isinstance(text, str) and text:
        yield text
    elif asset:
        transcript.leave_out(IMAGES, f"{place} ({asset})")
        yield f"[{'Image' if 'image' in text_in(part, 'content_type') else 'File'}: {asset}]"
    else:
        transcript.leave_out(f"content of the kind `{text_in(part, 'content_type') or 'unknown'}`", place)
