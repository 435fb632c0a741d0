"""Runs, what a finished turn answers, and the events of a run while it goes on."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import Field

from app.domain.events import EventType
from app.domain.message import Source
from app.domain.run import Run, RunStatus
from app.wire.context import ContextOut
from app.wire.messages import MessageOut, ToolCallOut
from app.wire.shape import JsonDict, Shape, Time, one_of, time_json


class UsageOut(Shape):
    """Tokens as the provider reported them."""

    input_tokens: int | None
    output_tokens: int | None


class ErrorOut(Shape):
    """Why a run failed."""

    type: str
    detail: str


class RunOut(Shape):
    """A run: one user message and what follows until the answer."""

    id: str
    session_id: str
    status: Annotated[str, one_of(*RunStatus)]
    source: Annotated[str, one_of(*Source)]
    author: str | None
    actor: str | None = Field(description="the key that acted for the author")
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    attempt: int
    cancel_requested: bool
    usage: UsageOut
    error: ErrorOut | None
    message_id: str | None = Field(description="the answer")


class Accepted(Shape):
    """A run that was accepted, or that was found."""

    run: RunOut


class TurnOut(Shape):
    """A finished turn: the answer, and how full the context is now."""

    run: RunOut
    message: MessageOut | None
    context: ContextOut | None


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


def run_json(run: Run) -> JsonDict:
    """Return a run as a `RunOut`; its input is not part of it, the stored user message is."""
    return {
        "id": str(run.id),
        "session_id": str(run.session_id),
        "status": run.status.value,
        "source": run.source.value,
        "author": run.author,
        "actor": run.actor,
        "created_at": run.created_at.isoformat(),
        "started_at": time_json(run.started_at),
        "finished_at": time_json(run.finished_at),
        "attempt": run.attempt,
        "cancel_requested": run.cancel_requested,
        "usage": {"input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens},
        "error": None if run.error is None else {"type": run.error.type, "detail": run.error.detail},
        "message_id": None if run.message_id is None else str(run.message_id),
    }
