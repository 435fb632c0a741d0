"""The stream of a run in LangGraph's form, in one or several stream modes."""

from collections.abc import Iterator, Mapping, Sequence

from fastapi import Response

from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.stream_turn import stream_turn
from throughline.domain.errors import ThroughlineError
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    HistoryQuoted,
    MemoriesQuoted,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolProgress,
)
from throughline.domain.message import Message, Role
from throughline.domain.run import Run, RunStatus
from throughline.http.call import Call
from throughline.http.problem_documents import json_line
from throughline.langgraph_api.assistants import LLM_NODE, TOOL_NODE, assistant_id
from throughline.langgraph_api.chunks import MessageChunks, Part
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


def stream_run(
    call: Call, turn: ChatTurn, thread_id: str, modes: Sequence[StreamMode] | None, headers: Mapping[str, str]
) -> Response:
    """Return the HTTP response that streams the run's part, as values without modes."""
    printer = _RunPrinter(call, thread_id, turn, modes or ["values"])
    return stream_turn(call, turn, printer, headers, heartbeat=HEARTBEAT)


def _encoded(part: Part, number: int | None = None) -> bytes:
    name, data = part
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), json_line(data))


class _RunPrinter:
    """Prints the events of a run's part; see `EventPrinter`.

    The last of what follows from an event has the event's number as its id.
    """

    def __init__(self, call: Call, thread_id: str, begun: ChatTurn, modes: Sequence[StreamMode]) -> None:
        self._call, self._thread_id, self._run, self._modes = call, thread_id, begun.followed.run, modes
        self._messages: dict[str, JsonDict] = {}
        self._has_shown = False
        self._is_whole = not begun.followed.after and not begun.followed.skipped_waits and not begun.part
        self._chunks = MessageChunks(modes, self._metadata(), is_joined=begun.followed.after > 0)

    async def begin(self) -> bytes:
        if "values" in self._modes:
            await self._load()
        return _encoded(("metadata", {"run_id": str(self._run.id), "attempt": 1}))

    async def show(self, one: RunEvent) -> bytes:
        parts = [part for part in self._parts(one.event) if self._is_asked(part)]
        encoded = [_encoded(part) for part in parts[:-1]]
        return b"".join([*encoded, *(_encoded(part, one.seq) for part in parts[-1:])])

    def fail(self, error: ThroughlineError) -> bytes:
        return _encoded(("error", {"error": error.code, "message": error.detail}))

    async def _load(self) -> None:
        """Read the state of the thread, without messages that the stream is going to bring."""
        messages = await read_newest(self._call, self._run.session_id)
        kept = (message for message in messages if not self._is_to_come(message))
        self._messages = {str(shown["id"]): shown for shown in map(message_json, kept)}
        asked = asked_json(self._run)
        self._messages.setdefault(str(asked["id"]), asked)

    def _is_to_come(self, message: Message) -> bool:
        is_made = message.run_id == self._run.id and message.role is not Role.USER
        return is_made and self._is_whole and not self._run.input.steps_brought

    def _is_asked(self, part: Part) -> bool:
        """Return whether the client wants the part. Pieces of messages are made only if it does."""
        return part[0] not in {"values", "updates", "custom"} or part[0] in self._modes

    def _parts(self, event: Event) -> Iterator[Part]:
        match event:
            case RunStarted():
                yield self._values()
            case MessageDelta() | ReasoningDelta() | ToolCallDelta():
                yield from self._chunks.grow(event)
            case MessageCompleted(message=message):
                yield from self._completed(message, LLM_NODE)
            case ToolAnswered(message=message):
                yield from self._completed(message, TOOL_NODE)
            case AnswerReset():
                yield from self._chunks.take_back()
                yield self._values()
            case RunWaiting(run=run):
                interrupts = interrupts_of(run)
                yield "updates", {"__interrupt__": interrupts}
                yield "values", values_json(self._messages.values(), interrupts)
                yield self._end(run)
            case RunEnded(run=run):
                yield from self._ended(run)
            case _:
                yield from _custom(event)

    def _completed(self, message: Message, node: str) -> Iterator[Part]:
        yield from self._chunks.complete(message)
        shown = message_json(message)
        self._messages[str(shown["id"])] = shown
        yield "updates", {node: {"messages": [shown]}}
        yield self._values()

    def _ended(self, run: Run) -> Iterator[Part]:
        error = error_of(run)
        if error is not None:
            yield "error", {"error": error.type, "message": error.detail}
            return
        if not self._has_shown:
            yield self._values()
        yield self._end(run)

    def _values(self) -> Part:
        self._has_shown = True
        return "values", values_json(self._messages.values(), ())

    def _end(self, run: Run) -> Part:
        return "end", {"run_id": str(run.id), "status": RUN_STATUS[run.status]}

    def _metadata(self) -> JsonDict:
        agent = self._run.agent
        ids: JsonDict = {"run_id": str(self._run.id), "thread_id": self._thread_id}
        return {**ids, "graph_id": agent, "assistant_id": assistant_id(agent)}


def _custom(event: Event) -> Iterator[Part]:
    """Yield how the context or a tool's call proceeds, in the form of this service's own events."""
    if isinstance(event, CompactionStarted | CompactionFinished | HistoryQuoted | MemoriesQuoted | ToolProgress):
        yield "custom", {"type": event.type.value, **event_json(event)}
