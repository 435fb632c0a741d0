"""The events of a run while it goes on: what each holds, and how it is rendered."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Field

from throughline.domain import events
from throughline.domain.events import EventType
from throughline.domain.message import Message, text_of
from throughline.domain.run import RunError, RunStatus
from throughline.wire.messages import MessageOut, ToolCallOut
from throughline.wire.runs import ErrorOut, RunOut, TurnOut
from throughline.wire.shape import JsonDict, Shape, one_of

UNKNOWN_ERROR = RunError("internal_error", "The run failed. The message is kept; send it again.")


class RunStarted(Shape):
    """A worker has begun the turn."""

    run: RunOut


class CompactionStarted(Shape):
    """Room is being made before the model is asked."""

    cause: str
    tokens: int = Field(description="of the prompt as it is")


class CompactionFinished(Shape):
    """How making room ended: with a summary, or with less shown."""

    cause: str
    outcome: Annotated[str, one_of("adopted", "skipped", "failed", "cancelled", "pruned", "fitted")]
    detail: str
    fired: list[str] = Field(description="what was done to the view")
    tokens_before: int
    tokens_after: int
    through_position: int = Field(description="the position the summary in use reaches, 0 where there is none")


class MessageDelta(Shape):
    """The next piece of the answer."""

    text: str


class ToolResult(Shape):
    """What a tool gave, as it is stored."""

    id: str = Field(description="of the call")
    name: str
    content: str
    is_error: bool


class MessageCompleted(Shape):
    """An assistant message is stored."""

    message: MessageOut


class RunCompleted(TurnOut):
    """The turn is over, with an answer."""


class RunFailed(Shape):
    """The turn is over, without an answer."""

    run: RunOut
    error: ErrorOut


class RunCancelled(Shape):
    """The turn was stopped; `message` is the part of the answer that readers were shown."""

    run: RunOut
    message: MessageOut | None


class Reset(Shape):
    """What was shown of this answer does not count: it starts again."""

    attempt: int


RunEnded: TypeAlias = RunCompleted | RunFailed | RunCancelled
EventData: TypeAlias = (
    RunStarted
    | CompactionStarted
    | CompactionFinished
    | MessageDelta
    | ToolCallOut
    | ToolResult
    | MessageCompleted
    | RunEnded
    | Reset
)
EVENTS: Mapping[str, type[EventData]] = {
    EventType.RUN_STARTED: RunStarted,
    EventType.COMPACTION_STARTED: CompactionStarted,
    EventType.COMPACTION_FINISHED: CompactionFinished,
    EventType.MESSAGE_DELTA: MessageDelta,
    EventType.TOOL_CALL: ToolCallOut,
    EventType.TOOL_RESULT: ToolResult,
    EventType.MESSAGE_COMPLETED: MessageCompleted,
    EventType.RUN_COMPLETED: RunCompleted,
    EventType.RUN_FAILED: RunFailed,
    EventType.RUN_CANCELLED: RunCancelled,
    EventType.RESET: Reset,
}
"""The data of each event, by the event's name."""


def event_json(event: events.Event) -> JsonDict:
    """Return the data of an event."""
    match event:
        case events.MessageDelta(text=text):  # a model is some five microseconds slower, for every piece and reader
            return {"text": text}
        case events.ToolCalled(call=call):
            return ToolCallOut.render(call)
        case events.ToolAnswered(message=message):
            return _result_json(message)
        case events.RunEnded():
            return ending_json(event)
        case _:
            return EVENTS[event.type].render(event)


def ending_json(ended: events.RunEnded) -> JsonDict:
    """Return the data of a run's last event: for a completed one what `POST …/messages` answers.

    The context report is handed on as it was stored, which an earlier version may have done.
    """
    run = ended.run
    run_json, answer = RunOut.render(run), None if ended.answer is None else MessageOut.render(ended.answer)
    match run.status:
        case RunStatus.SUCCEEDED:
            return {"run": run_json, "message": answer, "context": None if run.context is None else dict(run.context)}
        case RunStatus.CANCELLED:
            return {"run": run_json, "message": answer}
        case _:
            return {"run": run_json, "error": ErrorOut.render(run.error or UNKNOWN_ERROR)}


def _result_json(message: Message) -> JsonDict:
    """Return a result as it is stored, which may not be as the tool gave it."""
    return {
        "id": message.tool_call_id,
        "name": message.name,
        "content": text_of(message.content),
        "is_error": message.metadata.get("is_error") is True,
    }
