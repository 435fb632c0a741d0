"""A part of a run as a stream of the AI SDK's UIMessageChunks.

Calls of the client's tools and of `ask_user` are tool parts that the client gives an output. All others are dynamic
tools that a provider runs: the client neither knows nor runs them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import split_run
from throughline.domain.basic_types import JsonValue, MessageId
from throughline.domain.elicitation import ASK_USER, QUESTIONS_KEY
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
    ToolProgress,
)
from throughline.domain.message import Message, Role, ToolCall, text_of
from throughline.domain.prompt import Usage
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import WaitKind, send_again
from throughline.http.body import parse_json
from throughline.http.call import Call
from throughline.http.problem_documents import json_line
from throughline.wire.events import UNKNOWN_ERROR
from throughline.wire.events import CompactionFinished as CompactionFinishedOut
from throughline.wire.events import CompactionStarted as CompactionStartedOut
from throughline.wire.json_shape import JsonDict

END = b"data: [DONE]\n\n"
REJECTED = "reject"
NOT_FINISHED = "The call was not finished."


@dataclass(slots=True)
class _Sent:
    """What the client has of the answer by now.

    `message_id` is the message that the model writes now, `text` its text, and `open_kind` the kind of the part that
    is being written, None without one. `calls` are the ids of all calls, `open_calls` those without an output.
    """

    message_id: MessageId | None = None
    has_step: bool = False
    text: str = ""
    open_kind: str | None = None
    stored: set[MessageId] = field(default_factory=set)
    begun_calls: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    open_calls: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The answer, a UIMessage, that a stream writes, and the part of a run that it shows.

    `known_calls` are those that the client's answer has already, `open_calls` those of them without an output. With
    `is_whole` the stream begins with what the client lacks of the run's earlier parts.
    """

    turn: ChatTurn
    message_id: str
    known_calls: frozenset[str] = frozenset()
    open_calls: frozenset[str] = frozenset()
    is_whole: bool = False


class ChunkPrinter:
    """Prints a part of a run as chunks of an answer; see `EventPrinter`."""

    def __init__(self, call: Call, answer: StreamedAnswer) -> None:
        self._call = call
        self._answer = answer
        self._run = answer.turn.followed.run
        self._own_tools = {ASK_USER, *(tool.name for tool in self._run.input.client_tools)}
        self._sent = _Sent(calls=set(answer.known_calls), open_calls=set(answer.open_calls))

    async def begin(self) -> bytes:
        run, answer = self._run, self._answer
        metadata: JsonDict = {"run_id": str(run.id), "session_id": str(run.session_id)}
        start: JsonDict = {"type": "start", "messageId": answer.message_id, "messageMetadata": metadata}
        earlier = await self._stored_messages(0, answer.turn.part) if answer.is_whole and answer.turn.part else ()
        return _encoded(chain([start], self._messages(earlier)))

    async def show(self, one: RunEvent) -> bytes:
        event = one.event
        match event:
            case RunEnded() | RunWaiting():
                missing = await self._stored_messages(self._answer.turn.part) if self._lacks_messages(event) else ()
                last = self._wait(event.run) if isinstance(event, RunWaiting) else self._end(event)
                return _encoded(chain(self._messages(missing), self._close_text(), last)) + END
            case AnswerReset():
                return _encoded(self._take_back())
            case _:
                return _encoded(self._chunks(event))

    def _take_back(self) -> Iterator[JsonDict]:
        """Take back the step that is not stored yet, if there is one."""
        sent = self._sent
        if sent.message_id is not None and sent.message_id not in sent.stored:
            sent.message_id, sent.open_kind = None, None
            sent.begun_calls.clear()
            yield {"type": "reset-step"}

    def fail(self, error: ThroughlineError) -> bytes:
        return _encoded([{"type": "error", "errorText": error.detail}]) + END

    def _lacks_messages(self, event: RunEnded | RunWaiting) -> bool:
        """Return whether the part has ended with a message that no event has shown: its events were deleted."""
        last = event.message_id if isinstance(event, RunWaiting) else event.answer and event.answer.id
        return last is not None and last not in self._sent.stored

    async def _stored_messages(self, first: int, end: int | None = None) -> Sequence[Message]:
        """Return the stored messages of the run's parts from number `first` to before `end`."""
        run = await self._call.services.database.followed_runs.reload(self._run)
        parts = split_run(run, await self._call.services.database.messages.of_run(run))
        return [message for part in parts[first:end] for message in (*part.input, *part.made)]

    def _messages(self, messages: Iterable[Message]) -> Iterator[JsonDict]:
        for message in messages:
            if message.role is Role.TOOL:
                yield from self._result(message)
            elif message.id not in self._sent.stored and not self._has_calls_of(message):
                yield from self._complete(message)
                for call in message.tool_calls:
                    yield from self._called(call)

    def _has_calls_of(self, message: Message) -> bool:
        return bool(message.tool_calls) and all(call.id in self._sent.calls for call in message.tool_calls)

    def _chunks(self, event: Event) -> Iterator[JsonDict]:
        match event:
            case ReasoningDelta(message_id=message_id, text=text):
                yield from self._add_text("reasoning", message_id, text)
            case MessageDelta(message_id=message_id, text=text):
                yield from self._add_text("text", message_id, text)
            case ToolCallDelta():
                yield from self._add_arguments(event)
            case MessageCompleted(message=message):
                yield from self._complete(message)
            case ToolCalled(call=call):
                yield from self._called(call)
            case ToolAnswered(message=message):
                yield from self._result(message)
            case ToolProgress() | CompactionStarted() | CompactionFinished():
                yield _data(event)
            case _:
                pass

    def _enter_step(self, message_id: MessageId) -> Iterator[JsonDict]:
        """Begin the step of the message unless it is the current one, or the current one was taken back."""
        sent = self._sent
        if sent.message_id == message_id:
            return
        if sent.has_step and sent.message_id is not None:
            yield from self._close_text()
            yield {"type": "finish-step"}
            sent.has_step = False
        if not sent.has_step:
            yield {"type": "start-step"}
        sent.has_step, sent.message_id, sent.text = True, message_id, ""

    def _add_text(self, kind: str, message_id: MessageId, text: str) -> Iterator[JsonDict]:
        yield from self._enter_step(message_id)
        if self._sent.open_kind != kind:
            yield from self._close_text()
            yield {"type": f"{kind}-start", "id": str(message_id)}
            self._sent.open_kind = kind
        if kind == "text":
            self._sent.text += text
        yield {"type": f"{kind}-delta", "id": str(message_id), "delta": text}

    def _close_text(self) -> Iterator[JsonDict]:
        if self._sent.open_kind is not None:
            yield {"type": f"{self._sent.open_kind}-end", "id": str(self._sent.message_id)}
            self._sent.open_kind = None

    def _complete(self, message: Message) -> Iterator[JsonDict]:
        """Send what is missing of the text of a message that is stored now."""
        yield from self._enter_step(message.id)
        whole, sent = text_of(message.content), self._sent.text
        if whole.startswith(sent) and whole != sent:
            yield from self._add_text("text", message.id, whole.removeprefix(sent))
        yield from self._close_text()
        self._sent.stored.add(message.id)

    def _add_arguments(self, event: ToolCallDelta) -> Iterator[JsonDict]:
        yield from self._enter_step(event.message_id)
        yield from self._close_text()
        if event.call_id not in self._sent.begun_calls:
            self._sent.begun_calls.add(event.call_id)
            yield {"type": "tool-input-start", **self._tool(event.call_id, event.name)}
        if event.arguments_delta:
            yield {
                "type": "tool-input-delta",
                "toolCallId": event.call_id,
                "inputTextDelta": event.arguments_delta,
            }

    def _called(self, call: ToolCall) -> Iterator[JsonDict]:
        self._sent.begun_calls.discard(call.id)
        self._sent.calls.add(call.id)
        self._sent.open_calls.add(call.id)
        arguments: JsonValue = send_again(call.arguments).value  # type: ignore[assignment]  # parsed from JSON
        yield {"type": "tool-input-available", **self._tool(call.id, call.name), "input": arguments}

    def _tool(self, call_id: str, name: str) -> JsonDict:
        tool: JsonDict = {"toolCallId": call_id, "toolName": name}
        return tool if name in self._own_tools else {**tool, "dynamic": True, "providerExecuted": True}

    def _result(self, message: Message) -> Iterator[JsonDict]:
        """Send the output of a call that the client's answer has, and of the questions of its server."""
        for question, answer in answered_questions(message):
            if self._answer.is_whole and question.id not in self._sent.calls:
                yield from self._called(question)
            if question.id in self._sent.open_calls:
                self._sent.open_calls.discard(question.id)
                yield {"type": "tool-output-available", "toolCallId": question.id, "output": answer}
        call_id = message.tool_call_id or ""
        if call_id not in self._sent.open_calls:
            return
        self._sent.open_calls.discard(call_id)
        yield {"toolCallId": call_id, **_output(message)}

    def _wait(self, run: Run) -> Iterator[JsonDict]:
        """Ask for what the run waits for. A question of a tool's server is a call that no model has made."""
        waiting = run.waiting_for
        for awaited in () if waiting is None else waiting.calls:
            if awaited.kind is WaitKind.APPROVAL:
                yield {"type": "tool-approval-request", "approvalId": awaited.id, "toolCallId": awaited.id}
            elif awaited.id not in self._sent.calls:
                yield from self._called(awaited.call)
        yield from self._finish(run, "tool-calls")

    def _end(self, ended: RunEnded) -> Iterator[JsonDict]:
        run = ended.run
        for call_id in sorted(self._sent.open_calls):
            yield {"type": "tool-output-error", "toolCallId": call_id, "errorText": NOT_FINISHED}
        match run.status:
            case RunStatus.SUCCEEDED:
                if run.context is not None:
                    yield {"type": "data-context", "id": "context", "data": dict(run.context)}
                is_cut = ended.answer is not None and ended.answer.metadata.get("finish_reason") == "length"
                yield from self._finish(run, "length" if is_cut else "stop")
            case RunStatus.CANCELLED:
                yield {"type": "abort", "reason": "The turn was cancelled."}
            case _:
                yield {"type": "error", "errorText": (run.error or UNKNOWN_ERROR).detail}

    def _finish(self, run: Run, reason: str) -> Iterator[JsonDict]:
        if self._sent.has_step:
            yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {"usage": usage_json(run.usage)}}


def _encoded(chunks: Iterable[JsonDict]) -> bytes:
    return b"".join(b"data: %s\n\n" % json_line(chunk) for chunk in chunks)


def _data(event: ToolProgress | CompactionStarted | CompactionFinished) -> JsonDict:
    """Return what happens beside the answer, which is not kept with it."""
    match event:
        case ToolProgress():
            progress: JsonDict = {"progress": event.progress, "total": event.total, "message": event.message}
            return _transient("progress", {"toolCallId": event.call_id, **progress})
        case CompactionStarted():
            return _transient("compaction", {"state": "started", **CompactionStartedOut.render(event)})
        case CompactionFinished():
            return _transient("compaction", {"state": "finished", **CompactionFinishedOut.render(event)})


def _transient(name: str, data: JsonDict) -> JsonDict:
    return {"type": f"data-{name}", "data": data, "transient": True}


def _output(message: Message) -> JsonDict:
    """Return the result of a call as a chunk, without the call's id."""
    text = text_of(message.content)
    if message.metadata.get("decision") == REJECTED:
        return {"type": "tool-output-denied"}
    if message.metadata.get("is_error") is True:
        return {"type": "tool-output-error", "errorText": text}
    return {"type": "tool-output-available", "output": output_value(message)}


def output_value(result: Message) -> JsonValue:
    """Return the text of a result; of a tool's result that is a JSON object or array, its value."""
    text = text_of(result.content)
    if text[:1] in {"{", "["} and result.name != ASK_USER:
        with suppress(ThroughlineError):
            return parse_json(text.encode())
    return text


def answered_questions(result: Message) -> Iterator[tuple[ToolCall, str]]:
    """Yield the questions that the server of the call's tool has asked, as calls of `ask_user`, with their answers."""
    asked = result.metadata.get(QUESTIONS_KEY)
    for number, one in enumerate(asked if isinstance(asked, list) else (), start=1):
        if isinstance(one, dict) and isinstance(one.get("answer"), str):
            arguments = json.dumps({"question": one.get("question")})
            yield ToolCall(f"{result.tool_call_id}:{number}", ASK_USER, arguments), str(one["answer"])


def usage_json(usage: Usage) -> JsonDict:
    """Return what a run has used, in the AI SDK's words."""
    read, written = usage.input_tokens, usage.output_tokens
    return {
        "inputTokens": read,
        "outputTokens": written,
        "totalTokens": None if read is None and written is None else (read or 0) + (written or 0),
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
    }
