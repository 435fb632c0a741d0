"""Messages in LangChain's form: those that clients send, and the stored ones as clients read them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, Field

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.message import (
    CLIENT_MESSAGE_ID,
    ImageBlock,
    Message,
    NewMessage,
    Role,
    Source,
    TextBlock,
    ToolCall,
)
from throughline.domain.run import Run, user_message
from throughline.domain.tool import send_again
from throughline.http.body import validate
from throughline.http.openai_messages import INSTRUCTING, MAX_MESSAGES, ImportedMessage, read_messages
from throughline.wire.json_shape import JsonDict

PARAM = "input.messages"

MAX_ID = 200
ROLES: Mapping[str, str] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("ai", "assistant"), "assistant"),
    **{name: name for name in ("system", "developer", "tool")},
}
DROPPED = ("reasoning", "thinking", "redacted_thinking", "tool_use", "tool_call", "input_json_delta")
"""Parts of a model's message that say nothing to its reader, or that `tool_calls` has as well.

It is a tuple, because a client may send a type that is not hashable.
"""


class _Messages(BaseModel):
    messages: list[ImportedMessage] = Field(max_length=MAX_MESSAGES)


class _Input(BaseModel):
    input: _Messages


@dataclass(frozen=True, slots=True)
class InputMessages:
    """The messages of a request: `messages` without system messages, whose texts are `instructions`."""

    instructions: str
    messages: tuple[NewMessage, ...]


def read_input(given: JsonValue, source: Source) -> InputMessages:
    """Return the messages of a run's `input`. Raises InvalidInput, InvalidRequest.

    It is an object with `messages`, a list of messages or one message. Other members of the object are the state of
    other graphs and are left out.
    """
    listed = given.get("messages") if isinstance(given, dict) and "messages" in given else given
    if listed is None or listed == {}:
        raise InvalidInput("It has no messages. Send `messages`, or a `command` that resumes the run.", field="input")
    found = listed if isinstance(listed, list) and not _is_pair(listed) else [listed]
    sent = [_as_object(one, f"{PARAM}.{place}") for place, one in enumerate(found)]
    converted: list[JsonValue] = [_in_openai_form(one, f"{PARAM}.{place}") for place, one in enumerate(sent)]
    items = validate({"input": {"messages": converted}}, _Input).input.messages
    try:
        instructions, messages = read_messages(items, source)
    except InvalidInput as error:
        raise InvalidInput(error.detail, field=f"input.{error.field}") from error
    ids = [one.get("id") for one, item in zip(sent, items, strict=True) if item.role not in INSTRUCTING]
    return InputMessages(instructions, tuple(map(_with_id, messages, ids)))


def _is_pair(listed: JsonValue) -> bool:
    """Return whether the list is one message as a pair of role and text, rather than two texts."""
    match listed:
        case [str() as role, str()]:
            return role in ROLES
        case _:
            return False


def _as_object(given: JsonValue, field: str) -> JsonDict:
    """Return a message as an object. Raises InvalidInput."""
    match given:
        case str():
            return {"role": "user", "content": given}
        case [str() as role, content]:
            return {"role": role, "content": content}
        case {"lc": _, "kwargs": dict() as values, "id": [*_, str() as name]}:
            return {"type": name, **values}
        case dict():
            return given
        case _:
            raise InvalidInput("Must be an object, a text, or a pair of role and text.", field=field)


def _in_openai_form(given: JsonDict, field: str) -> JsonDict:
    """Return the message in OpenAI's form, whose parts are checked there. Raises InvalidInput."""
    kind = given.get("role", given.get("type"))
    name = str(kind).removesuffix("Chunk").removesuffix("Message").lower()
    if name == "remove":
        raise InvalidInput(
            "Messages of a thread are never removed. Delete the thread, or redact a message.", field=field
        )
    if name not in ROLES:
        raise InvalidInput(f"Its type must be one of {', '.join(ROLES)}.", field=f"{field}.type")
    calls = given.get("tool_calls")
    return {
        "role": ROLES[name],
        "content": _content(given.get("content"), is_answer=ROLES[name] == "assistant"),
        "name": given.get("name"),
        "tool_call_id": given.get("tool_call_id"),
        "tool_calls": [_call(call) for call in calls] if isinstance(calls, list) and calls else None,
    }


def _content(given: JsonValue, *, is_answer: bool) -> JsonValue:
    if not isinstance(given, list):
        return given
    kept = (part for part in given if not (is_answer and isinstance(part, dict) and part.get("type") in DROPPED))
    return [_part(part) for part in kept]


def _part(given: JsonValue) -> JsonValue:
    """Return a part of a content in OpenAI's form; one that this service does not know stays as it is."""
    match given:
        case str():
            return {"type": "text", "text": given}
        case {"type": "image_url", "image_url": str() as url}:
            return {"type": "image_url", "image_url": {"url": url}}
        case dict() if given.get("type") == "image":
            return {"type": "image_url", "image_url": {"url": _image_url(given)}}
        case _:
            return given


def _image_url(part: JsonDict) -> JsonValue:
    """Return the address of an image in one of the forms of LangChain's content blocks."""
    data = part.get("base64", part.get("data"))
    if not isinstance(data, str):
        return part.get("url")
    return f"data:{part.get('mime_type', part.get('mimeType'))};base64,{data}"


def _call(given: JsonValue) -> JsonValue:
    if not isinstance(given, dict) or "function" in given:
        return given
    arguments = json.dumps(given.get("args", {}), ensure_ascii=False)
    return {"id": given.get("id"), "function": {"name": given.get("name"), "arguments": arguments}}


def _with_id(message: NewMessage, given: JsonValue) -> NewMessage:
    if given is None:
        return message
    if not isinstance(given, str) or not 0 < len(given) <= MAX_ID:
        raise InvalidInput(f"The id of a message must be text of 1 to {MAX_ID} characters.", field=PARAM)
    return replace(message, metadata={CLIENT_MESSAGE_ID: given})


def client_id_of(metadata: JsonObject) -> str | None:
    """Return the id that a client gave a message, None if it gave none."""
    found = metadata.get(CLIENT_MESSAGE_ID)
    return found if isinstance(found, str) else None


def message_id(message: Message) -> str:
    """Return the id under which clients know the message."""
    return client_id_of(message.metadata) or str(message.id)


def message_json(message: Message) -> JsonDict:
    """Return a stored message as clients read it."""
    return _json(message, message_id(message))


def asked_json(run: Run) -> JsonDict:
    """Return the user's message of a run as clients read it, also before it is stored."""
    return _json(user_message(run), client_id_of(run.input.metadata) or str(run.user_message_id))


def _json(message: Message | NewMessage, shown_id: str) -> JsonDict:
    content = message.content
    shown_content: JsonValue = content if isinstance(content, str) else [_block_json(block) for block in content]
    shown: JsonDict = {"id": shown_id, "content": shown_content, "additional_kwargs": {}, "response_metadata": {}}
    match message.role:
        case Role.USER:
            return {"type": "human", **shown, "name": message.author}
        case Role.ASSISTANT:
            calls: list[JsonValue] = [call_json(call) for call in message.tool_calls]
            return {"type": "ai", **shown, "name": None, "tool_calls": calls, "invalid_tool_calls": []}
        case Role.TOOL:
            status = "error" if message.metadata.get("is_error") is True else "success"
            result: JsonDict = {"tool_call_id": message.tool_call_id, "status": status, "artifact": None}
            return {"type": "tool", **shown, "name": message.name, **result}


def call_json(call: ToolCall) -> JsonDict:
    """Return a tool call as clients read it. Arguments that are no JSON object are wrapped in one."""
    arguments: JsonDict = json.loads(send_again(call.arguments).text)
    return {"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"}


def _block_json(block: TextBlock | ImageBlock) -> JsonDict:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": block.url, "detail": block.detail}}
