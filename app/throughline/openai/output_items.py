"""Messages of this service as items of OpenAI's Responses interface.

Tools that the service runs itself are shown as `mcp_call`, because clients run every `function_call`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from throughline.domain.basic_types import JsonValue, MessageId, RunId, SessionId
from throughline.domain.elicitation import QUESTION_COUNT_KEY
from throughline.domain.errors import NotFound
from throughline.domain.message import Content, ImageBlock, Message, Role, ToolCall, clean_text, text_of
from throughline.domain.tool import OUTSIDE, Wait, WaitKind

HEX_LENGTH = 32
MAX_SHOWN = 60
MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ResponseRef:
    """A response: part number `part` of a run. A run that has waited and continued `n` times has `n + 1` parts."""

    run_id: RunId
    part: int = 0

    def __str__(self) -> str:
        """Return the response's id, `resp_` and the run's id, with the part's number unless it is the first."""
        return f"resp_{self.run_id.hex}" + (f"_{self.part}" if self.part else "")


def conversation_id(session_id: SessionId) -> str:
    """Return `conv_` and the session's id in hexadecimal digits: a session is shown as a conversation of that id."""
    return f"conv_{session_id.hex}"


def read_conversation_id(text: str) -> SessionId:
    """Return the session that a conversation is. Raises NotFound for anything that is no conversation's id."""
    found = _uuid(text.removeprefix("conv_")) if text.startswith("conv_") else None
    if found is None:
        raise NotFound(f"There is no conversation {clean_text(text)[:MAX_SHOWN]!r}.")
    return SessionId(found)


def read_response_id(text: str) -> ResponseRef:
    """Return the response with this id. Raises NotFound for anything that is no response's id."""
    digits, _, part = text.removeprefix("resp_").partition("_")
    found = _uuid(digits) if text.startswith("resp_") else None
    if found is None or not (part == "" or (part.isascii() and part.isdigit() and len(part) <= MAX_DIGITS)):
        raise response_not_found(text)
    return ResponseRef(RunId(found), int(part or 0))


def response_not_found(text: str) -> NotFound:
    """Return the error for a response that is missing or another user's."""
    return NotFound(f"There is no response {clean_text(text)[:MAX_SHOWN]!r}.")


def message_item_id(message_id: MessageId) -> str:
    """Return the id of the item that shows a message's text."""
    return f"msg_{message_id.hex}"


def call_item_id(message_id: MessageId, index: int) -> str:
    """Return the id of the item that shows tool call number `index` of a message."""
    return f"fc_{message_id.hex}_{index}"


def result_item_id(message_id: MessageId) -> str:
    """Return the id of the item that shows a tool's result."""
    return f"fco_{message_id.hex}"


def read_item_id(text: str) -> MessageId:
    """Return the message that an item shows. Raises NotFound for anything that is no item's id."""
    parts = text.split("_")
    found = _uuid(parts[1]) if len(parts) in {2, 3} and parts[0] in {"msg", "fc", "fco", "mcp"} else None
    if found is None:
        raise NotFound(f"There is no item {clean_text(text)[:MAX_SHOWN]!r}.")
    return MessageId(found)


def _uuid(digits: str) -> UUID | None:
    is_hex = len(digits) == HEX_LENGTH and all(digit in "0123456789abcdef" for digit in digits)
    return UUID(hex=digits) if is_hex else None


SERVER_LABEL = "throughline"
COMPLETED = "completed"
JsonDict = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class CallKinds:
    """What the calls of a run wait for: `client_tools` are the names of the client's tools, `awaited` kinds by call id.

    A call of neither is run by the service.
    """

    client_tools: frozenset[str]
    awaited: Mapping[str, WaitKind]

    def is_for_client(self, call: ToolCall) -> bool:
        """Return whether the client has to bring the call's result: that of its own tool, or a person's answer."""
        kind = self.awaited.get(call.id)
        return call.name in self.client_tools if kind is None else kind is not WaitKind.APPROVAL

    def needs_approval(self, call: ToolCall) -> bool:
        """Return whether the call waits, or has waited, for a person's approval."""
        return self.awaited.get(call.id) is WaitKind.APPROVAL

    def is_run_by_service(self, call: ToolCall) -> bool:
        """Return whether the service runs the call without asking, so that its item shows its result."""
        return not self.is_for_client(call) and not self.needs_approval(call)


@dataclass(frozen=True, slots=True)
class PairedCalls:
    """The results of calls, by the message of a call and the call's number in it.

    `calls_without_result` are ids whose last call has no result, `results_without_call` those of results without an
    open call before them.
    """

    results: Mapping[tuple[MessageId, int], Message]
    calls_without_result: tuple[str, ...]
    results_without_call: tuple[str, ...]


def pair_calls(messages: Sequence[Message]) -> PairedCalls:
    """Return which result belongs to which call of the messages.

    A result belongs to the last call of its id before it, unless that call has a result already.
    """
    results: dict[tuple[MessageId, int], Message] = {}
    waiting: dict[str | None, tuple[MessageId, int]] = {}
    unasked: list[str] = []
    for message in messages:
        waiting |= {call.id: (message.id, number) for number, call in enumerate(message.tool_calls)}
        if message.role is not Role.TOOL:
            continue
        asked = waiting.pop(message.tool_call_id, None)
        if asked is not None:
            results[asked] = message
        elif message.tool_call_id is not None:
            unasked.append(message.tool_call_id)
    return PairedCalls(results, tuple(call_id for call_id in waiting if call_id is not None), tuple(unasked))


def items_of(messages: Sequence[Message], kinds: CallKinds) -> list[JsonDict]:
    """Return the items of messages in their order: texts, calls, and results.

    The result of a tool that the service ran is part of its call's item. Without the call among `messages`, it is an
    item with the call's name.
    """
    return [item for _, items in items_by_message(messages, kinds) for item in items]


def items_by_message(messages: Sequence[Message], kinds: CallKinds) -> list[tuple[Message, list[JsonDict]]]:
    """Return each message with its items, in their order. A result that its call's item shows has none."""
    results = pair_calls(messages).results
    joined = {
        result.id
        for message in messages
        for number, call in enumerate(message.tool_calls)
        if kinds.is_run_by_service(call) and (result := results.get((message.id, number))) is not None
    }
    return [(message, [] if message.id in joined else _of_message(message, results, kinds)) for message in messages]


def _of_message(message: Message, results: Mapping[tuple[MessageId, int], Message], kinds: CallKinds) -> list[JsonDict]:
    match message.role:
        case Role.USER:
            return [user_item(message)]
        case Role.ASSISTANT:
            return list(_of_step(message, results, kinds))
        case Role.TOOL:
            return [_of_result(message)]


def _of_result(message: Message) -> JsonDict:
    if message.metadata.get(OUTSIDE) == WaitKind.APPROVAL or QUESTION_COUNT_KEY in message.metadata:
        return mcp_item(f"mcp_{message.id.hex}", ToolCall("", message.name or "", "{}"), message)
    return result_item(message)


def _of_step(
    message: Message, results: Mapping[tuple[MessageId, int], Message], kinds: CallKinds
) -> Iterator[JsonDict]:
    if text_of(message.content) or not message.tool_calls:
        yield message_item(message)
    for index, call in enumerate(message.tool_calls):
        item_id = call_item_id(message.id, index)
        if kinds.is_for_client(call):
            yield function_item(item_id, call)
        elif kinds.needs_approval(call):
            yield approval_item(call)
        else:
            yield mcp_item(item_id, call, results.get((message.id, index)))


def message_item(message: Message, status: str = COMPLETED) -> JsonDict:
    """Return the item of an assistant's text."""
    is_cut = message.metadata.get("finish_reason") == "length" or message.metadata.get("interrupted") is True
    return {
        "type": "message",
        "id": message_item_id(message.id),
        "status": "incomplete" if is_cut else status,
        "role": "assistant",
        "content": [text_part(text_of(message.content))],
    }


def text_part(text: str) -> JsonDict:
    """Return the content part of an answer's text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def function_item(item_id: str, call: ToolCall, status: str = COMPLETED) -> JsonDict:
    """Return the item of a call whose result the client brings."""
    return {
        "type": "function_call",
        "id": item_id,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    }


def question_items(wait: Wait | None) -> list[JsonDict]:
    """Return items for the open questions of tools' servers: calls of `ask_user` that the client answers."""
    asked = (one for one in wait.open_calls if one.paused is not None) if wait is not None else ()
    return [function_item(f"fc_{one.id}", one.call) for one in asked]


def approval_item(call: ToolCall) -> JsonDict:
    """Return the item of a call that needs approval; its id is that of the call."""
    return {
        "type": "mcp_approval_request",
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "server_label": SERVER_LABEL,
    }


def mcp_item(item_id: str, call: ToolCall, result: Message | None, status: str = COMPLETED) -> JsonDict:
    """Return the item of a call that the service runs itself, with its result if there is one yet."""
    is_error = result is not None and result.metadata.get("is_error") is True
    text = None if result is None else text_of(result.content)
    return {
        "type": "mcp_call",
        "id": item_id,
        "name": call.name,
        "arguments": call.arguments,
        "server_label": SERVER_LABEL,
        "output": None if is_error else text,
        "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
        if is_error
        else None,
        "approval_request_id": None,
        "status": status,
    }


def user_item(message: Message) -> JsonDict:
    """Return the item of a user's message."""
    return {
        "type": "message",
        "id": message_item_id(message.id),
        "status": COMPLETED,
        "role": "user",
        "content": _input_parts(message.content),
    }


def result_item(message: Message) -> JsonDict:
    """Return the item of a tool's result."""
    return {
        "type": "function_call_output",
        "id": result_item_id(message.id),
        "call_id": message.tool_call_id,
        "output": text_of(message.content),
        "status": COMPLETED,
    }


def _input_parts(content: Content) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [
        {"type": "input_image", "image_url": block.url, "detail": block.detail, "file_id": None}
        if isinstance(block, ImageBlock)
        else {"type": "input_text", "text": block.text}
        for block in content
    ]
