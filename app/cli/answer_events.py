"""The events of an answer being written, as values."""

from dataclasses import dataclass
from typing import TypeAlias

from app.cli.replies import ContextReply, MessageReply, RunErrorReply, RunReply, read_json, read_value
from app.cli.sse import ServerSentEvent
from app.domain.events import EventType


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker has begun the turn."""

    run: RunReply


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model asked for a tool."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A tool gave its result."""

    name: str
    content: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """Room is being made before the model is asked."""

    cause: str | None = None
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """How it ended: with a summary (`adopted`, `skipped`, `failed`), or with less shown (`pruned`, `fitted`).

    `fired` names what was done to the view.
    """

    outcome: str = ""
    fired: tuple[str, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    through_position: int | None = None


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """An assistant message is stored."""

    message: MessageReply


@dataclass(frozen=True, slots=True)
class AnswerReset:
    """What was shown of this answer does not count: it starts again."""

    attempt: int = 0


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The turn is over; `status` is `completed`, `failed` or `cancelled`."""

    status: str
    error: RunErrorReply | None = None
    context: ContextReply | None = None


@dataclass(frozen=True, slots=True)
class ConnectionCut:
    """The connection broke; it is being made again."""

    attempt: int


AnswerEvent: TypeAlias = (
    RunStarted
    | TextPiece
    | ToolCalled
    | ToolAnswered
    | CompactionStarted
    | CompactionFinished
    | MessageCompleted
    | AnswerReset
    | RunEnded
    | ConnectionCut
)

PLAIN: dict[str, type[AnswerEvent]] = {
    EventType.RUN_STARTED: RunStarted,
    EventType.MESSAGE_DELTA: TextPiece,
    EventType.TOOL_CALL: ToolCalled,
    EventType.TOOL_RESULT: ToolAnswered,
    EventType.COMPACTION_STARTED: CompactionStarted,
    EventType.COMPACTION_FINISHED: CompactionFinished,
    EventType.MESSAGE_COMPLETED: MessageCompleted,
    EventType.RESET: AnswerReset,
}
LAST = {EventType.RUN_COMPLETED: "completed", EventType.RUN_FAILED: "failed", EventType.RUN_CANCELLED: "cancelled"}


def read_event(event: ServerSentEvent) -> AnswerEvent | None:
    """Return what `event` says, None for a kind this version does not know. Raises UnexpectedReply if unreadable."""
    if event.event in LAST:
        return _read_end(event, status=LAST[EventType(event.event)])
    kind = PLAIN.get(event.event)
    return None if kind is None else read_json(kind, event.data)


def _read_end(event: ServerSentEvent, *, status: str) -> RunEnded:
    body = read_json(dict[str, object], event.data)
    error = body.get("error")
    context = body.get("context")
    return RunEnded(
        status,
        error=None if error is None else read_value(RunErrorReply, error),
        context=read_value(ContextReply, context) if isinstance(context, dict) and context else None,
    )
