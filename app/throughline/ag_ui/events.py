"""AG-UI's events of one part of a run, made from the run's events.

AG-UI calls each part a run. Rules of the order: https://docs.ag-ui.com/spec/1.0/basic/patterns .
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from throughline.ag_ui.run_input import RunAgentInput
from throughline.ag_ui.thread_messages import ThreadMessages, content_json
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
from throughline.domain.message import Message, text_of
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


@dataclass(slots=True)
class _Open:
    """What is being streamed: texts, the reasoning, and calls by their ids."""

    texts: set[MessageId] = field(default_factory=set)
    reasoning: str = ""
    calls: set[str] = field(default_factory=set)


class AgUiEvents:
    """Printer of one part of a run (`chat_protocols/stream_turn.py`).

    `read_snapshot` returns the thread's messages with those of the part that are complete. It is asked at the beginning
    if `begins_with_messages`, and after a reset. `part` is the number of the run's part.
    """

    def __init__(
        self,
        asked: RunAgentInput,
        run: Run,
        part: int,
        read_snapshot: Callable[[frozenset[MessageId]], Awaitable[ThreadMessages]],
        *,
        begins_with_messages: bool,
    ) -> None:
        self._asked = asked
        self._run = run
        self._part = part
        self._read_snapshot = read_snapshot
        self._begins_with_messages = begins_with_messages
        self._open = _Open()
        self._complete: set[MessageId] = set()
        self._spans = 0

    async def begin(self) -> bytes:
        """Return the run's beginning: the state, and the thread's messages if the client lacks some of them."""
        made = [started(self._asked), *state_of(self._asked, self._run)]
        if self._begins_with_messages:
            made.append(await self._thread())
        return encode(*made)

    async def show(self, one: RunEvent) -> bytes:
        """Return what follows from an event. Events of messages that the client has already give nothing."""
        event = one.event
        match event:
            case RunEnded() | RunWaiting():
                return encode(*self._close(), *self._end(event))
            case AnswerReset():  # text that was sent since the last complete message is taken back
                return encode(*self._close(), await self._thread())
            case _:
                return encode(*self._made_from(event))

    def _end(self, event: RunEnded | RunWaiting) -> Iterator[JsonDict]:
        """Yield the end: how the part has ended, and what it has used."""
        run = event.run
        if run.context is not None and isinstance(self._asked.state, dict | None):
            change: JsonDict = {"op": "add", "path": f"/{STATE_KEY}/context", "value": dict(run.context)}
            yield {"type": "STATE_DELTA", "delta": [change]}
        if run.status is RunStatus.FAILED:
            error = run.error or UNKNOWN_ERROR
            yield {**failed(error.type, error.detail), **self._usage(run)}
        else:
            yield {**finished(self._asked, _outcome(event)), **self._usage(run)}

    def fail(self, error: ThroughlineError) -> bytes:
        """Return the end of a stream that could not go on."""
        return encode(failed(error.code, error.detail))

    async def _thread(self) -> JsonDict:
        """Return the snapshot of the thread. Messages in it are not streamed again."""
        thread = await self._read_snapshot(frozenset(self._complete))
        self._complete |= thread.complete
        return snapshot(thread.shown)

    def _made_from(self, event: Event) -> Iterator[JsonDict]:
        match event:
            case ReasoningDelta(message_id=message_id, text=text):
                yield from self._think(message_id, text)
            case MessageDelta(message_id=message_id, text=text):
                yield from self._write(message_id, text)
            case MessageCompleted(message=message):
                yield from self._complete_message(message)
            case ToolCallDelta(message_id=message_id, arguments_delta=delta):
                if message_id not in self._complete:
                    yield from self._write_arguments(message_id, event.call_id, event.name, delta)
            case ToolAnswered(message=message):
                yield from self._answer(message)
            case RunStarted() | ToolCalled():  # calls come with their message, which a snapshot may have had
                pass
            case _:
                yield {"type": "CUSTOM", "name": event.type.value, "value": event_json(event)}

    def _answer(self, message: Message) -> Iterator[JsonDict]:
        """Yield the result of a tool, unless the client has it: because it was sent, or is the client's own."""
        is_new = message.id not in self._complete and message.metadata.get(OUTSIDE) != WaitKind.TOOL_RESULT
        self._complete.add(message.id)
        if is_new:
            call_id = message.tool_call_id or ""
            content = content_json(message.content)
            yield {"type": "TOOL_CALL_RESULT", "messageId": str(message.id), "toolCallId": call_id, "content": content}

    def _think(self, message_id: MessageId, text: str) -> Iterator[JsonDict]:
        if message_id in self._complete:
            return
        if not self._open.reasoning:
            self._spans += 1
            self._open.reasoning = f"{message_id}:reasoning:{self._spans}"
            yield {"type": "REASONING_START", "messageId": self._open.reasoning}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._open.reasoning, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._open.reasoning, "delta": text}

    def _end_reasoning(self) -> Iterator[JsonDict]:
        if self._open.reasoning:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._open.reasoning}
            yield {"type": "REASONING_END", "messageId": self._open.reasoning}
            self._open.reasoning = ""

    def _write(self, message_id: MessageId, text: str) -> Iterator[JsonDict]:
        if message_id in self._complete or not text:
            return
        yield from self._end_reasoning()
        if message_id not in self._open.texts:
            self._open.texts.add(message_id)
            yield {"type": "TEXT_MESSAGE_START", "messageId": str(message_id), "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": str(message_id), "delta": text}

    def _complete_message(self, message: Message) -> Iterator[JsonDict]:
        """Close the message's text and calls. What did not come in pieces is sent as a whole."""
        if message.id in self._complete:
            return
        if message.id not in self._open.texts:
            yield from self._write(message.id, text_of(message.content))
        streamed = {*self._open.calls}
        yield from self._close()
        for call in message.tool_calls:
            if call.id not in streamed:
                yield from self._write_arguments(message.id, call.id, call.name, call.arguments)
                yield from self._close()
        self._complete.add(message.id)

    def _end_text(self, message_id: MessageId) -> Iterator[JsonDict]:
        if message_id in self._open.texts:
            self._open.texts.remove(message_id)
            yield {"type": "TEXT_MESSAGE_END", "messageId": str(message_id)}

    def _write_arguments(self, message_id: MessageId, call_id: str, name: str, delta: str) -> Iterator[JsonDict]:
        yield from self._end_reasoning()
        if call_id not in self._open.calls:
            self._open.calls.add(call_id)
            yield {
                "type": "TOOL_CALL_START",
                "toolCallId": call_id,
                "toolCallName": name,
                "parentMessageId": str(message_id),
            }
        if delta:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": delta}

    def _close(self) -> Iterator[JsonDict]:
        """Close everything that is open."""
        yield from self._end_reasoning()
        for message_id in tuple(self._open.texts):
            yield from self._end_text(message_id)
        for call_id in self._open.calls:
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}
        self._open.calls.clear()

    def _usage(self, run: Run) -> JsonDict:
        used = part_usage(run, RunPart(number=self._part))
        if used is None or run.usage.input_tokens is None:
            return {}
        read, written = used.input_tokens or 0, used.output_tokens or 0
        counts: dict[str, JsonValue] = {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
        return {"usage": [counts]}


def started(asked: RunAgentInput) -> JsonDict:
    """Return the first event of a stream."""
    ids: JsonDict = {"threadId": asked.thread_id, "runId": asked.run_id, "protocolVersion": PROTOCOL_VERSION}
    return {
        "type": "RUN_STARTED",
        **ids,
        **({} if asked.parent_run_id is None else {"parentRunId": asked.parent_run_id}),
    }


def state_of(asked: RunAgentInput, run: Run) -> Iterator[JsonDict]:
    """Yield the client's own state with what this service says beside it. A state that is no object stays as it is."""
    given = {} if asked.state is None else asked.state
    if isinstance(given, dict):
        kept = given.get(STATE_KEY)
        context = kept.get("context") if isinstance(kept, dict) else None
        own: JsonDict = {"session_id": str(run.session_id), "run_id": str(run.id), "context": context}
        if run.context is not None:
            own["context"] = dict(run.context)
        yield {"type": "STATE_SNAPSHOT", "snapshot": {**given, STATE_KEY: own}}


def snapshot(messages: list[JsonDict]) -> JsonDict:
    """Return the event with all messages of the thread."""
    return {"type": "MESSAGES_SNAPSHOT", "messages": [*messages]}


def finished(asked: RunAgentInput, outcome: JsonDict) -> JsonDict:
    """Return the last event of a run that has not failed."""
    known = _early_outcome(outcome) if asked.protocol_version is None else {"outcome": outcome}
    return {"type": "RUN_FINISHED", "threadId": asked.thread_id, "runId": asked.run_id, **known}


def _early_outcome(outcome: JsonDict) -> JsonDict:
    """Return the outcome for a client from before 1.0, which takes an event for invalid that says more."""
    match outcome["type"]:
        case "interrupt":
            return {"outcome": outcome}
        case "success":
            return {"outcome": {"type": "success"}}
        case _:
            return {}


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
    named: JsonDict = {} if awaited.server is None else {"metadata": {"server": awaited.server}}
    question, schema = read_question(awaited.arguments), _answer_schema(awaited)
    return {**base, "reason": "input_required", "message": question.text, "responseSchema": schema, **named}


def _answer_schema(awaited: AwaitedCall) -> JsonDict:
    """Return the schema of the answer: of one that a tool's server wants, or of a text."""
    given = None if awaited.server is None else json.loads(awaited.arguments).get("schema")
    if isinstance(given, dict) and given:
        return given
    options: list[JsonValue] = [*read_question(awaited.arguments).options]
    return {"type": "string", "enum": options} if options else {"type": "string"}
