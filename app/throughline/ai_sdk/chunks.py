"""A part of a run as a stream of the AI SDK's UIMessageChunks.

Calls of the client's tools and of `ask_user` are tool parts that the client gives an output. All others are dynamic
tools that a provider runs: the client neither knows nor runs them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from throughline.ai_sdk.history import NOT_FINISHED, answered_questions, client_tool_names, input_of, result_state
from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import split_run
from throughline.domain.basic_types import JsonValue, MessageId
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    GraphEvent,
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
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import WaitKind
from throughline.http.call import Call
from throughline.http.problem_documents import json_line
from throughline.wire.events import UNKNOWN_ERROR, event_json
from throughline.wire.json_shape import JsonDict

END = b"data: [DONE]\n\n"


class ChunkPrinter:
    """Printer of the part of a run as chunks of an answer, a UIMessage; see `EventPrinter`.

    `lacks_output` says of each call in the client's answer whether its output is missing. With `sends_earlier_parts`
    the stream begins with what the client lacks of the run's earlier parts.
    """

    def __init__(
        self,
        call: Call,
        turn: ChatTurn,
        message_id: str,
        lacks_output: Mapping[str, bool] = MappingProxyType({}),
        *,
        sends_earlier_parts: bool = False,
    ) -> None:
        self.turn = turn
        self._call = call
        self._run = turn.followed.run
        self._answer_id = message_id
        self._lacks_output = dict(lacks_output)
        self._sends_earlier_parts = sends_earlier_parts
        self._client_tool_names = client_tool_names(self._run)
        # The message that the model writes now, its text so far, and the kind of the part that is being written.
        self._message_id: MessageId | None = None
        self._text = ""
        self._open_kind: str | None = None
        self._has_step = False
        self._begun_calls: set[str] = set()
        self._complete_ids: set[MessageId] = set()

    async def begin(self) -> bytes:
        run, part = self._run, self.turn.part
        metadata: JsonDict = {"run_id": str(run.id), "session_id": str(run.session_id)}
        start: JsonDict = {"type": "start", "messageId": self._answer_id, "messageMetadata": metadata}
        earlier = await self._stored_messages(0, part) if self._sends_earlier_parts and part else ()
        return _encoded(chain([start], self._messages(earlier)))

    async def encode_event(self, numbered: RunEvent) -> bytes:
        event = numbered.event
        match event:
            case RunEnded() | RunWaiting():
                missing = await self._stored_messages(self.turn.part) if self._lacks_message(event) else ()
                end = self._wait(event.run) if isinstance(event, RunWaiting) else self._end(event)
                return _encoded(chain(self._messages(missing), self._close_text(), end)) + END
            case AnswerReset():
                return _encoded(self._take_back())
            case _:
                return _encoded(self._chunks(event))

    def _lacks_message(self, event: RunEnded | RunWaiting) -> bool:
        """Return whether no event has shown the part's last message: its events were deleted."""
        if isinstance(event, RunWaiting):
            return event.message_id not in self._complete_ids
        return event.answer is not None and event.answer.id not in self._complete_ids

    def fail(self, error: ThroughlineError) -> bytes:
        return _encoded([{"type": "error", "errorText": error.detail}]) + END

    async def _stored_messages(self, first: int, end: int | None = None) -> Sequence[Message]:
        """Return the stored messages of the run's parts from number `first` to before `end`."""
        run = await self._call.services.database.followed_runs.reload(self._run)
        parts = split_run(run, await self._call.services.database.messages.of_run(run))
        return [message for part in parts[first:end] for message in (*part.input, *part.made)]

    def _messages(self, messages: Iterable[Message]) -> Iterator[JsonDict]:
        for message in messages:
            if message.role is Role.TOOL:
                yield from self._result(message)
                continue
            is_known = bool(message.tool_calls) and all(call.id in self._lacks_output for call in message.tool_calls)
            if message.id not in self._complete_ids and not is_known:
                yield from self._complete(message)
                for call in message.tool_calls:
                    yield from self._called(call)

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
            case ToolProgress() | GraphEvent() | CompactionStarted() | CompactionFinished():
                yield _data(event)
            case _:
                pass

    def _take_back(self) -> Iterator[JsonDict]:
        """Take back the step that is not stored yet, if there is one."""
        if self._message_id is not None and self._message_id not in self._complete_ids:
            self._message_id, self._open_kind = None, None
            self._begun_calls.clear()
            yield {"type": "reset-step"}

    def _enter_step(self, message_id: MessageId) -> Iterator[JsonDict]:
        """Begin the step of the message unless it is the current one, or the current one was taken back."""
        if self._message_id == message_id:
            return
        if self._has_step and self._message_id is not None:
            yield from self._close_text()
            yield {"type": "finish-step"}
            self._has_step = False
        if not self._has_step:
            yield {"type": "start-step"}
        self._has_step, self._message_id, self._text = True, message_id, ""

    def _add_text(self, kind: str, message_id: MessageId, text: str) -> Iterator[JsonDict]:
        yield from self._enter_step(message_id)
        if self._open_kind != kind:
            yield from self._close_text()
            yield {"type": f"{kind}-start", "id": str(message_id)}
            self._open_kind = kind
        if kind == "text":
            self._text += text
        yield {"type": f"{kind}-delta", "id": str(message_id), "delta": text}

    def _close_text(self) -> Iterator[JsonDict]:
        if self._open_kind is not None:
            yield {"type": f"{self._open_kind}-end", "id": str(self._message_id)}
            self._open_kind = None

    def _complete(self, message: Message) -> Iterator[JsonDict]:
        """Send what is missing of the text of a message that is stored now."""
        yield from self._enter_step(message.id)
        whole = text_of(message.content)
        if whole.startswith(self._text) and whole != self._text:
            yield from self._add_text("text", message.id, whole.removeprefix(self._text))
        yield from self._close_text()
        self._complete_ids.add(message.id)

    def _add_arguments(self, event: ToolCallDelta) -> Iterator[JsonDict]:
        yield from self._enter_step(event.message_id)
        yield from self._close_text()
        if event.call_id not in self._begun_calls:
            self._begun_calls.add(event.call_id)
            yield {"type": "tool-input-start", **self._tool(event.call_id, event.name)}
        if event.arguments_delta:
            yield {"type": "tool-input-delta", "toolCallId": event.call_id, "inputTextDelta": event.arguments_delta}

    def _called(self, call: ToolCall) -> Iterator[JsonDict]:
        self._begun_calls.discard(call.id)
        self._lacks_output[call.id] = True
        yield {"type": "tool-input-available", **self._tool(call.id, call.name), "input": input_of(call)}

    def _tool(self, call_id: str, name: str) -> JsonDict:
        tool: JsonDict = {"toolCallId": call_id, "toolName": name}
        return tool if name in self._client_tool_names else {**tool, "dynamic": True, "providerExecuted": True}

    def _result(self, message: Message) -> Iterator[JsonDict]:
        """Send the output of a call that the client's answer has, and of the questions of its server."""
        for question, answered in answered_questions(message):
            if self._sends_earlier_parts and question.id not in self._lacks_output:
                yield from self._called(question)
            yield from self._output(question.id, answered)
        yield from self._output(message.tool_call_id or "", result_state(message))

    def _output(self, call_id: str, state: JsonDict) -> Iterator[JsonDict]:
        """Send the output of a call unless the client has it."""
        if self._lacks_output.get(call_id):
            self._lacks_output[call_id] = False
            given = {name: value for name, value in state.items() if name in {"output", "errorText"}}
            yield {"type": f"tool-{state['state']}", "toolCallId": call_id, **given}

    def _wait(self, run: Run) -> Iterator[JsonDict]:
        """Ask for what the run waits for. A question of a tool's server is a call that no model has made."""
        waiting = run.waiting_for
        for awaited in () if waiting is None else waiting.calls:
            if awaited.kind is WaitKind.APPROVAL:
                yield {"type": "tool-approval-request", "approvalId": awaited.id, "toolCallId": awaited.id}
            elif awaited.id not in self._lacks_output:
                yield from self._called(awaited.call)
        yield from self._finish(run, "tool-calls")

    def _end(self, ended: RunEnded) -> Iterator[JsonDict]:
        run = ended.run
        for call_id in sorted(self._lacks_output):
            yield from self._output(call_id, NOT_FINISHED)
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
        if self._has_step:
            yield {"type": "finish-step"}
        read, written = run.usage.input_tokens, run.usage.output_tokens
        usage: JsonDict = {
            "inputTokens": read,
            "outputTokens": written,
            "totalTokens": None if read is None and written is None else (read or 0) + (written or 0),
            "reasoningTokens": run.usage.reasoning_tokens,
            "cachedInputTokens": run.usage.cached_tokens,
        }
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {"usage": usage}}


def _encoded(chunks: Iterable[JsonDict]) -> bytes:
    return b"".join(b"data: %s\n\n" % json_line(chunk) for chunk in chunks)


def _data(event: ToolProgress | GraphEvent | CompactionStarted | CompactionFinished) -> JsonDict:
    """Return what happens beside the answer, which is not kept with it."""
    match event:
        case ToolProgress():
            progress: JsonDict = {"progress": event.progress, "total": event.total, "message": event.message}
            return _transient("progress", {"toolCallId": event.call_id, **progress})
        case GraphEvent(data=data):
            return _transient("graph", data)
        case CompactionStarted():
            return _transient("compaction", {"state": "started", **event_json(event)})
        case CompactionFinished():
            return _transient("compaction", {"state": "finished", **event_json(event)})


def _transient(name: str, data: JsonValue) -> JsonDict:
    return {"type": f"data-{name}", "data": data, "transient": True}
