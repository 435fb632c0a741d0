"""AG-UI's events of one part of a run, made from the run's events, and the messages in them.

AG-UI calls each part a run. Rules of the order: https://docs.ag-ui.com/spec/1.0/basic/patterns .
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from throughline.ag_ui.run_input import RunAgentInput
from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import RunPart, part_usage
from throughline.domain.basic_types import JsonValue, MessageId
from throughline.domain.elicitation import call_of_question
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    Event,
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
from throughline.domain.message import (
    CLIENT_MESSAGE_ID,
    Block,
    Content,
    Message,
    NewMessage,
    Role,
    TextBlock,
    ToolCall,
    text_of,
)
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import OUTSIDE, AwaitedCall, Wait, WaitKind, read_question
from throughline.http.problem_documents import json_line
from throughline.wire.events import UNKNOWN_ERROR, event_json
from throughline.wire.json_shape import JsonDict

PROTOCOL_VERSION = "1.0"
STATE_KEY = "throughline"
"""Key in the thread's state with the ids of session and run, and how full the context is. The rest is the client's."""

APPROVAL_SCHEMA: JsonDict = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "arguments to run the call with instead"},
        "reason": {"type": "string", "description": "what the agent is told if the call is not approved"},
    },
    "required": ["approved"],
}
ReadThread: TypeAlias = Callable[[frozenset[MessageId]], Awaitable[Sequence[Message | NewMessage]]]


@dataclass(slots=True)
class AgUiEvents:
    """Printer of one part of a run (`chat_protocols/stream_turn.py`).

    `read_thread` returns the thread's messages, including only the given ones of this part. It is called at the
    beginning if the client lacks messages, and after a reset.
    """

    asked: RunAgentInput
    turn: ChatTurn
    read_thread: ReadThread
    _complete: set[MessageId] = field(init=False, default_factory=set)
    """Messages that the client has, from events or a snapshot."""
    _closing_events: dict[str, tuple[JsonDict, ...]] = field(init=False, default_factory=dict)
    """Events that end what is being sent, by its id: the reasoning, texts and calls."""
    _reasoning: str = field(init=False, default="")
    """Id of the newest reasoning, empty before the first."""
    _spans: int = field(init=False, default=0)

    async def begin(self) -> bytes:
        """Return the run's beginning: the state, and the thread's messages if the client lacks some of them."""
        made = [started(self.asked), *state_of(self.asked, self.turn.followed.run)]
        if self.turn.is_joined or self.turn.lacks_history:
            made.append(await self._thread())
        return encode(*made)

    async def encode_event(self, numbered: RunEvent) -> bytes:
        """Return what follows from an event. Events of messages that the client has already give nothing."""
        event = numbered.event
        match event:
            case RunEnded() | RunWaiting():
                return encode(*self._close(), *self._end(event))
            case AnswerReset():  # text that was sent since the last complete message is taken back
                return encode(*self._close(), await self._thread())
            case _:
                return encode(*self._events_for(event))

    def fail(self, error: ThroughlineError) -> bytes:
        """Return the end of a stream that could not go on."""
        return encode(failed(error.code, error.detail))

    async def _thread(self) -> JsonDict:
        """Return the snapshot of the thread. Messages in it are not streamed again."""
        messages = await self.read_thread(frozenset(self._complete))
        self._complete.update(message.id for message in messages if message.id is not None)
        return snapshot(messages)

    def _end(self, event: RunEnded | RunWaiting) -> Iterator[JsonDict]:
        """Yield the new context if there is one, and the last event, with the part's outcome and usage."""
        run = event.run
        if run.context is not None and isinstance(self.asked.state, dict | None):
            change: JsonDict = {"op": "add", "path": f"/{STATE_KEY}/context", "value": dict(run.context)}
            yield {"type": "STATE_DELTA", "delta": [change]}
        last = finished(self.asked, _outcome(event))
        if run.status is RunStatus.FAILED:
            error = run.error or UNKNOWN_ERROR
            last = failed(error.type, error.detail)
        used = part_usage(run, RunPart(number=self.turn.part))
        if used is not None and run.usage.input_tokens is not None:
            read, written = used.input_tokens or 0, used.output_tokens or 0
            last["usage"] = [{"inputTokens": read, "outputTokens": written, "totalTokens": read + written}]
        yield last

    def _events_for(self, event: Event) -> Iterator[JsonDict]:
        match event:
            case (
                ReasoningDelta(message_id=known)
                | MessageDelta(message_id=known)
                | ToolCallDelta(message_id=known)
                | MessageCompleted(message=Message(id=known))
                | ToolAnswered(message=Message(id=known))
            ) if known in self._complete:
                pass
            case ReasoningDelta():
                yield from self._write_reasoning(event)
            case MessageDelta(message_id=message_id, text=text):
                yield from self._write_text(str(message_id), text)
            case ToolCallDelta(message_id=message_id, arguments_delta=delta):
                yield from self._write_call(str(message_id), ToolCall(event.call_id, event.name, delta))
            case MessageCompleted(message=message):
                yield from self._complete_message(message)
            case ToolAnswered(message=message):
                yield from self._answer(message)
            case RunStarted() | ToolCalled():  # calls come with their message, which a snapshot may have had
                pass
            case _:
                yield {"type": "CUSTOM", "name": event.type.value, "value": event_json(event)}

    def _write_reasoning(self, event: ReasoningDelta) -> Iterator[JsonDict]:
        if self._reasoning not in self._closing_events:
            self._spans += 1
            self._reasoning = f"{event.message_id}:reasoning:{self._spans}"
            ids: JsonDict = {"messageId": self._reasoning}
            self._closing_events[self._reasoning] = (
                {"type": "REASONING_MESSAGE_END", **ids},
                {"type": "REASONING_END", **ids},
            )
            yield {"type": "REASONING_START", **ids}
            yield {"type": "REASONING_MESSAGE_START", **ids, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._reasoning, "delta": event.text}

    def _end_reasoning(self) -> Iterator[JsonDict]:
        yield from self._closing_events.pop(self._reasoning, ())

    def _write_text(self, message_id: str, text: str) -> Iterator[JsonDict]:
        if not text:
            return
        yield from self._end_reasoning()
        if message_id not in self._closing_events:
            self._closing_events[message_id] = ({"type": "TEXT_MESSAGE_END", "messageId": message_id},)
            yield {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}

    def _write_call(self, message_id: str, call: ToolCall) -> Iterator[JsonDict]:
        """Yield the call, or a piece of its arguments."""
        yield from self._end_reasoning()
        if call.id not in self._closing_events:
            self._closing_events[call.id] = ({"type": "TOOL_CALL_END", "toolCallId": call.id},)
            begun: JsonDict = {"toolCallId": call.id, "toolCallName": call.name, "parentMessageId": message_id}
            yield {"type": "TOOL_CALL_START", **begun}
        if call.arguments:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": call.arguments}

    def _complete_message(self, message: Message) -> Iterator[JsonDict]:
        """Close the message's text and calls. What did not come in pieces is sent as a whole."""
        self._complete.add(message.id)
        message_id = str(message.id)
        if message_id not in self._closing_events:
            yield from self._write_text(message_id, text_of(message.content))
        unsent = [call for call in message.tool_calls if call.id not in self._closing_events]
        yield from self._close()
        for call in unsent:
            yield from self._write_call(message_id, call)
            yield from self._close()

    def _answer(self, message: Message) -> Iterator[JsonDict]:
        """Yield the result of a tool, unless it is the client's own."""
        self._complete.add(message.id)
        if message.metadata.get(OUTSIDE) != WaitKind.TOOL_RESULT:
            result: JsonDict = {"toolCallId": message.tool_call_id or "", "content": content_json(message.content)}
            yield {"type": "TOOL_CALL_RESULT", "messageId": str(message.id), **result}

    def _close(self) -> Iterator[JsonDict]:
        """Close everything that is open."""
        yield from chain.from_iterable(self._closing_events.values())
        self._closing_events.clear()


def started(asked: RunAgentInput) -> JsonDict:
    """Return the first event of a stream."""
    parent: JsonDict = {} if asked.parent_run_id is None else {"parentRunId": asked.parent_run_id}
    ids: JsonDict = {"threadId": asked.thread_id, "runId": asked.run_id, **parent}
    return {"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION}


def state_of(asked: RunAgentInput, run: Run) -> Iterator[JsonDict]:
    """Yield the client's own state with what this service says beside it. A state that is no object stays as it is."""
    given = {} if asked.state is None else asked.state
    if isinstance(given, dict):
        kept = given.get(STATE_KEY)
        context = kept.get("context") if isinstance(kept, dict) else None
        own: JsonDict = {"session_id": str(run.session_id), "run_id": str(run.id)}
        own["context"] = context if run.context is None else dict(run.context)
        yield {"type": "STATE_SNAPSHOT", "snapshot": {**given, STATE_KEY: own}}


def snapshot(messages: Sequence[Message | NewMessage]) -> JsonDict:
    """Return the event with all messages of the thread."""
    return {"type": "MESSAGES_SNAPSHOT", "messages": [message_json(message) for message in messages]}


def finished(asked: RunAgentInput, outcome: JsonDict) -> JsonDict:
    """Return the last event of a run that has not failed.

    Clients from before 1.0 refuse an event with members or outcomes that they do not know.
    """
    end: JsonDict = {"type": "RUN_FINISHED", "threadId": asked.thread_id, "runId": asked.run_id}
    if asked.protocol_version is not None or outcome["type"] == "interrupt":
        return {**end, "outcome": outcome}
    return {**end, "outcome": {"type": "success"}} if outcome["type"] == "success" else end


def failed(code: str, detail: str) -> JsonDict:
    """Return the last event of a run that has failed."""
    return {"type": "RUN_ERROR", "message": detail, "code": code}


def encode(*events: JsonDict) -> bytes:
    """Return the events as server-sent events."""
    return b"".join(b"data: %s\n\n" % json_line(event) for event in events)


def _outcome(event: RunEnded | RunWaiting) -> JsonDict:
    """Return how the part has ended. Calls of the client's tools alone are no interrupt."""
    wait = event.run.waiting_for
    if event.run.status is RunStatus.CANCELLED:
        return {"type": "cancelled"}
    if isinstance(event, RunEnded) or wait is None:
        return {"type": "success"}
    asked = [awaited for awaited in wait.calls if awaited.kind is not WaitKind.TOOL_RESULT]
    if not asked:
        return {"type": "success", "pendingToolCallIds": [awaited.id for awaited in wait.calls]}
    return {"type": "interrupt", "interrupts": [_interrupt(awaited, wait) for awaited in asked]}


def _interrupt(awaited: AwaitedCall, wait: Wait) -> JsonDict:
    call_id, until = call_of_question(awaited.id) or awaited.id, wait.until.isoformat()
    base: JsonDict = {"id": awaited.id, "toolCallId": call_id, "expiresAt": until}
    if awaited.kind is WaitKind.APPROVAL:
        asked = f"The agent asks to call {awaited.name}."
        return {**base, "reason": "tool_call", "message": asked, "responseSchema": APPROVAL_SCHEMA}
    question = read_question(awaited.arguments)
    schema: JsonDict = {"type": "string", "enum": [*question.options]} if question.options else {"type": "string"}
    shown: JsonDict = {**base, "reason": "input_required", "message": question.text, "responseSchema": schema}
    if awaited.server is not None:  # a question of a tool's server, which may want more than a text
        shown["metadata"] = {"server": awaited.server}
        shown["responseSchema"] = json.loads(awaited.arguments).get("schema") or schema
    return shown


def message_json(message: Message | NewMessage) -> JsonDict:
    """Return a message of the thread. One of the user keeps the id that its client gave it."""
    shown: JsonDict = {"id": str(message.id), "role": message.role.value, "content": content_json(message.content)}
    match message.role:
        case Role.USER:
            given = message.metadata.get(CLIENT_MESSAGE_ID)
            if isinstance(given, str):
                shown["id"] = given
            if message.author is not None:
                shown["name"] = message.author
        case Role.TOOL:
            shown["toolCallId"] = message.tool_call_id or ""
            if message.metadata.get("is_error") is True:
                shown["error"] = text_of(message.content)
        case Role.ASSISTANT:
            calls: list[JsonValue] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
            shown["content"] = text_of(message.content)
            if calls:
                shown["toolCalls"] = calls
    return shown


def content_json(content: Content) -> JsonValue:
    """Return a text, or the parts of a message with images."""
    return content if isinstance(content, str) else [_part_json(block) for block in content]


def _part_json(block: Block) -> JsonDict:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.url.startswith("data:"):
        kind, _, data = block.url.removeprefix("data:").partition(";base64,")
        return {"type": "image", "source": {"type": "data", "mimeType": kind, "value": data}}
    return {"type": "image", "source": {"type": "url", "value": block.url}}
