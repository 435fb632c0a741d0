"""The stream of a run in LangGraph's form, in one or several stream modes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from fastapi import Response

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.stream_turn import stream_turn
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    Event,
    GraphEvent,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, Role, text_of
from throughline.domain.run import RunStatus
from throughline.http.call import Call
from throughline.http.problem_documents import json_line
from throughline.langgraph_api.assistants import LLM_NODE, TOOL_NODE, assistant_id
from throughline.langgraph_api.interrupts import interrupts_of
from throughline.langgraph_api.messages import asked_json, message_json
from throughline.langgraph_api.request import StreamMode
from throughline.langgraph_api.thread_state import error_of, read_newest, values_json
from throughline.wire.events import event_json
from throughline.wire.json_shape import JsonDict

HEARTBEAT = b": heartbeat\n"
"""Comment that keeps a connection open. It ends without a blank line, because some readers take that for an event."""

RUN_STATUS: Mapping[RunStatus, str] = {
    RunStatus.QUEUED: "pending",
    RunStatus.RUNNING: "running",
    RunStatus.WAITING: "interrupted",
    RunStatus.SUCCEEDED: "success",
    RunStatus.FAILED: "error",
    RunStatus.CANCELLED: "interrupted",
}
"""LangGraph's words for the status of a run."""

REASONING = "reasoning_content"
"""Key among the additional values of a message under which LangChain has its reasoning."""

ServerSentEvent: TypeAlias = tuple[str, JsonValue]
"""The name and the data of a server-sent event."""


def stream_run(
    call: Call, turn: ChatTurn, thread_id: str, modes: Sequence[StreamMode] | None, headers: Mapping[str, str]
) -> Response:
    """Return the HTTP response that streams the run's part, as values without modes."""
    printer = _RunPrinter(call, thread_id, turn, modes or ["values"])
    return stream_turn(call, turn, printer, headers, heartbeat=HEARTBEAT)


def _encoded(event: ServerSentEvent, number: int | None = None) -> bytes:
    name, data = event
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), json_line(data))


class _RunPrinter:
    """Printer of a run's part; see `EventPrinter`.

    The last server-sent event that is made from a run's event has its number as id.
    """

    def __init__(self, call: Call, thread_id: str, turn: ChatTurn, modes: Sequence[StreamMode]) -> None:
        self._call, self._run, self._modes = call, turn.followed.run, modes
        self._messages: dict[str, JsonDict] = {}
        self._is_loaded = self._has_sent_values = False
        self._has_all_events = not turn.followed.after and not turn.followed.skipped_waits and not turn.part
        agent = self._run.agent
        ids: JsonDict = {"run_id": str(self._run.id), "thread_id": thread_id}
        metadata: JsonDict = {**ids, "graph_id": agent, "assistant_id": assistant_id(agent)}
        self._chunks = MessageChunks(modes, metadata, is_joined=turn.followed.after > 0)

    async def begin(self) -> bytes:
        return _encoded(("metadata", {"run_id": str(self._run.id), "attempt": 1}))

    async def encode_event(self, numbered: RunEvent) -> bytes:
        if "values" in self._modes and not self._is_loaded:
            await self._load()  # not before the run begins: another one may go before it
        sent = [one for one in self._events_for(numbered.event) if self._is_requested(one)]
        encoded = [_encoded(one) for one in sent[:-1]]
        return b"".join([*encoded, *(_encoded(one, numbered.seq) for one in sent[-1:])])

    def fail(self, error: ThroughlineError) -> bytes:
        return _encoded(("error", {"error": error.code, "message": error.detail}))

    async def _load(self) -> None:
        """Read the state of the thread, without messages that the stream is going to bring."""
        brings_all = self._has_all_events and not self._run.input.steps_brought
        for message in await read_newest(self._call, self._run.session_id):
            if not brings_all or message.run_id != self._run.id or message.role is Role.USER:
                self._keep(message_json(message))
        asked = asked_json(self._run)
        self._messages.setdefault(str(asked["id"]), asked)
        self._is_loaded = True

    def _keep(self, shown: JsonDict) -> None:
        self._messages[str(shown["id"])] = shown

    def _is_requested(self, event: ServerSentEvent) -> bool:
        """Return whether the client wants the event. Pieces of messages are made only if it does."""
        return event[0] not in {"values", "updates", "custom"} or event[0] in self._modes

    def _events_for(self, event: Event) -> Iterator[ServerSentEvent]:
        match event:
            case RunStarted():
                yield self._values()
            case MessageDelta() | ReasoningDelta() | ToolCallDelta():
                yield from self._chunks.grow(event)
            case MessageCompleted(message=message) | ToolAnswered(message=message):
                yield from self._completed(message)
            case AnswerReset():
                yield from self._chunks.remove_incomplete()
                yield self._values()
            case RunWaiting() | RunEnded():
                yield from self._ended(event)
            case ToolCalled():
                return  # the completed message has it
            case _:
                yield "custom", _custom(event)

    def _completed(self, message: Message) -> Iterator[ServerSentEvent]:
        shown = message_json(message)
        self._keep(shown)
        yield from self._chunks.complete(message)
        yield "updates", {_node_of(message): {"messages": [shown]}}
        yield self._values()

    def _ended(self, event: RunWaiting | RunEnded) -> Iterator[ServerSentEvent]:
        run, error = event.run, error_of(event.run)
        if isinstance(event, RunWaiting):
            interrupts = interrupts_of(run)
            yield "updates", {"__interrupt__": interrupts}
            yield self._values(interrupts)
        elif error is not None:
            yield "error", {"error": error.type, "message": error.detail}
            return
        elif not self._has_sent_values:
            yield self._values()
        yield "end", {"run_id": str(run.id), "status": RUN_STATUS[run.status]}

    def _values(self, interrupts: Sequence[JsonValue] = ()) -> ServerSentEvent:
        self._has_sent_values = True
        return "values", values_json(self._messages.values(), interrupts)


def _node_of(message: Message) -> str:
    return LLM_NODE if message.role is Role.ASSISTANT else TOOL_NODE


# Messages as they grow, in the modes `messages-tuple` (its pieces) and `messages` (what there is so far).


@dataclass(slots=True)
class _Growing:
    """What was sent of a message that is not complete."""

    text: str = ""
    reasoning: str = ""
    calls: set[int] = field(default_factory=set)


class MessageChunks:
    """The growing messages of one stream, as server-sent events. `metadata` is sent with each piece.

    With `is_joined` an earlier stream may have sent pieces of the first message.
    """

    def __init__(self, modes: Sequence[StreamMode], metadata: JsonDict, *, is_joined: bool) -> None:
        self._is_tuple, self._is_list = "messages-tuple" in modes, "messages" in modes
        self._metadata = metadata
        self._is_joined = is_joined
        self._growing: dict[str, _Growing] = {}

    def grow(self, event: MessageDelta | ReasoningDelta | ToolCallDelta) -> Iterator[ServerSentEvent]:
        """Yield the next piece of a message."""
        shown_id = str(event.message_id)
        is_first = shown_id not in self._growing
        sent = self._growing.setdefault(shown_id, _Growing())
        match event:
            case MessageDelta(text=text):
                sent.text += text
                yield from self._piece(shown_id, text)
            case ReasoningDelta(text=text):
                sent.reasoning += text
                yield from self._piece(shown_id, reasoning=text)
            case ToolCallDelta(index=index):
                name, call_id = (None, None) if index in sent.calls else (event.name, event.call_id)
                sent.calls.add(index)
                yield from self._piece(shown_id, call=_call_chunk(index, event.arguments_delta, name, call_id))
        if self._is_list:
            if is_first:
                yield self._metadata_event(shown_id, LLM_NODE)
            begun: JsonDict = {"type": "ai", **_text_json(shown_id, sent.text, sent.reasoning)}
            yield "messages/partial", [{**begun, "tool_calls": [], "invalid_tool_calls": []}]

    def complete(self, message: Message) -> Iterator[ServerSentEvent]:
        """Yield the rest of a model's message, or a tool's result, which comes at once."""
        shown, shown_id = message_json(message), str(message.id)
        is_known = shown_id in self._growing or self._is_joined
        if message.role is Role.ASSISTANT:
            yield from self._rest(message, self._growing.pop(shown_id, _Growing()), shown_id)
        else:
            yield from self._tuple_event(shown, TOOL_NODE)
        self._is_joined = False
        if self._is_list:
            if not is_known:
                yield self._metadata_event(shown_id, _node_of(message))
            yield "messages/complete", [shown]

    def remove_incomplete(self) -> Iterator[ServerSentEvent]:
        """Yield the removal of messages that are not complete: the attempt starts again."""
        self._is_joined = False
        for shown_id in self._growing:
            yield from self._tuple_event({"type": "remove", "id": shown_id, "content": ""}, LLM_NODE)
        self._growing = {}

    def _rest(self, message: Message, sent: _Growing, shown_id: str) -> Iterator[ServerSentEvent]:
        """Yield the unsent text and calls; nothing if an earlier stream may have sent them, or sent another text."""
        text = text_of(message.content)
        if self._is_joined or not text.startswith(sent.text):
            return
        is_empty = not (text or message.tool_calls)  # a message without anything has one piece, too
        if text != sent.text or (is_empty and not sent.text):
            yield from self._piece(shown_id, text[len(sent.text) :])
        for index, call in enumerate(message.tool_calls):
            if index not in sent.calls:
                yield from self._piece(shown_id, call=_call_chunk(index, call.arguments, call.name, call.id))

    def _piece(
        self, shown_id: str, text: str = "", *, reasoning: str = "", call: JsonDict | None = None
    ) -> Iterator[ServerSentEvent]:
        chunk: JsonDict = {"type": "AIMessageChunk", **_text_json(shown_id, text, reasoning)}
        yield from self._tuple_event({**chunk, "tool_call_chunks": [] if call is None else [call]}, LLM_NODE)

    def _tuple_event(self, message: JsonDict, node: str) -> Iterator[ServerSentEvent]:
        if self._is_tuple:
            yield "messages", [message, {**self._metadata, "langgraph_node": node}]

    def _metadata_event(self, shown_id: str, node: str) -> ServerSentEvent:
        return "messages/metadata", {shown_id: {"metadata": {**self._metadata, "langgraph_node": node}}}


def _text_json(shown_id: str, text: str, reasoning: str) -> JsonDict:
    more: JsonDict = {REASONING: reasoning} if reasoning else {}
    return {"id": shown_id, "content": text, "additional_kwargs": more, "response_metadata": {}}


def _call_chunk(index: int, arguments: str, name: str | None, call_id: str | None) -> JsonDict:
    return {"args": arguments, "index": index, "type": "tool_call_chunk", "name": name, "id": call_id}


def _custom(event: Event) -> JsonValue:
    """Return what a graph's node has written as it is; how the context or a tool's call proceeds as an own event."""
    return event.data if isinstance(event, GraphEvent) else {"type": event.type.value, **event_json(event)}
