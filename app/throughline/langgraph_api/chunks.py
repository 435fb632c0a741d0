"""Messages of a run as they grow, in the forms of the stream modes `messages-tuple` and `messages`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from throughline.domain.basic_types import JsonValue
from throughline.domain.events import MessageDelta, ReasoningDelta, ToolCallDelta
from throughline.domain.message import Message, Role, text_of
from throughline.langgraph_api.assistants import LLM_NODE, TOOL_NODE
from throughline.langgraph_api.messages import message_json
from throughline.langgraph_api.request import StreamMode
from throughline.wire.json_shape import JsonDict

Part: TypeAlias = tuple[str, JsonValue]
"""The name and the data of a server-sent event."""

REASONING = "reasoning_content"
"""Key among the additional values of a message under which LangChain has its reasoning."""


@dataclass(slots=True)
class _Growing:
    """What was sent of a message that is not complete."""

    text: str = ""
    reasoning: str = ""
    calls: set[int] = field(default_factory=set)


class MessageChunks:
    """The messages of one stream. `metadata` is sent with each piece.

    With `is_joined` the client may have been sent pieces of the first message before.
    """

    def __init__(self, modes: Sequence[StreamMode], metadata: JsonDict, *, is_joined: bool) -> None:
        self._is_tuple, self._is_list = "messages-tuple" in modes, "messages" in modes
        self._metadata = metadata
        self._is_joined = is_joined
        self._growing: dict[str, _Growing] = {}

    def grow(self, event: MessageDelta | ReasoningDelta | ToolCallDelta) -> Iterator[Part]:
        """Yield the next piece of a message."""
        shown_id = str(event.message_id)
        is_first, sent = shown_id not in self._growing, self._growing.setdefault(shown_id, _Growing())
        match event:
            case MessageDelta(text=text):
                sent.text += text
                yield from self._piece(shown_id, text)
            case ReasoningDelta(text=text):
                sent.reasoning += text
                yield from self._piece(shown_id, "", reasoning=text)
            case ToolCallDelta():
                is_named = event.index in sent.calls
                sent.calls.add(event.index)
                call: JsonDict = {"args": event.arguments_delta, "index": event.index, "type": "tool_call_chunk"}
                name, call_id = (None, None) if is_named else (event.name, event.call_id)
                yield from self._piece(shown_id, "", call={**call, "name": name, "id": call_id})
        if self._is_list:
            yield from self._partial(shown_id, sent, is_first=is_first)

    def complete(self, message: Message) -> Iterator[Part]:
        """Yield the rest of a model's message, or a tool's result, which comes at once."""
        shown, shown_id = message_json(message), str(message.id)
        is_known = shown_id in self._growing or self._is_joined
        if message.role is Role.ASSISTANT:
            yield from self._rest(message, self._growing.pop(shown_id, _Growing()), shown_id)
        else:
            yield from self._tuple(shown, TOOL_NODE)
        self._is_joined = False
        if self._is_list:
            if not is_known:
                yield self._described(shown_id, LLM_NODE if message.role is Role.ASSISTANT else TOOL_NODE)
            yield "messages/complete", [shown]

    def take_back(self) -> Iterator[Part]:
        """Yield the removal of messages that are not complete: the attempt starts again."""
        self._is_joined = False
        for shown_id in self._growing:
            yield from self._tuple({"type": "remove", "id": shown_id, "content": ""}, LLM_NODE)
        self._growing = {}

    def _rest(self, message: Message, sent: _Growing, shown_id: str) -> Iterator[Part]:
        """Yield what was not sent of the message; nothing if the client may have it from another stream."""
        text = text_of(message.content)
        if self._is_joined or not text.startswith(sent.text):
            return
        if text != sent.text or not (sent.text or message.tool_calls):
            yield from self._piece(shown_id, text[len(sent.text) :])
        for index, call in enumerate(message.tool_calls):
            if index not in sent.calls:
                whole: JsonDict = {"name": call.name, "args": call.arguments, "id": call.id, "index": index}
                yield from self._piece(shown_id, "", call={**whole, "type": "tool_call_chunk"})

    def _piece(self, shown_id: str, text: str, *, reasoning: str = "", call: JsonDict | None = None) -> Iterator[Part]:
        chunk: JsonDict = {
            "type": "AIMessageChunk",
            "id": shown_id,
            "content": text,
            "additional_kwargs": {REASONING: reasoning} if reasoning else {},
            "response_metadata": {},
            "tool_call_chunks": [] if call is None else [call],
        }
        yield from self._tuple(chunk, LLM_NODE)

    def _tuple(self, message: JsonDict, node: str) -> Iterator[Part]:
        if self._is_tuple:
            yield "messages", [message, {**self._metadata, "langgraph_node": node}]

    def _partial(self, shown_id: str, sent: _Growing, *, is_first: bool) -> Iterator[Part]:
        if is_first:
            yield self._described(shown_id, LLM_NODE)
        more: JsonDict = {REASONING: sent.reasoning} if sent.reasoning else {}
        begun: JsonDict = {"type": "ai", "id": shown_id, "content": sent.text, "additional_kwargs": more}
        yield "messages/partial", [{**begun, "response_metadata": {}, "tool_calls": [], "invalid_tool_calls": []}]

    def _described(self, shown_id: str, node: str) -> Part:
        return "messages/metadata", {shown_id: {"metadata": {**self._metadata, "langgraph_node": node}}}
