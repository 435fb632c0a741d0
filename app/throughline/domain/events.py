"""Run events: what a reader of a run sees, numbered by sequence within the run.

Events are values with the messages and the run they tell of; storage keeps those by id (`db/runs/event_rows.py`), and
each door renders them its own way.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias

from throughline.domain.compaction import CompactionOutcome
from throughline.domain.ids import RunId
from throughline.domain.message import Message, ToolCall
from throughline.domain.run import Run, RunStatus

STAND_IN_END = 999_999_999
"""The number of a last event that was made from stored messages: a reader that saw it has seen all there is."""


class EventType(StrEnum):
    """The closed set of event names, as they are stored and as they stand on the wire."""

    RUN_STARTED = "run.started"
    COMPACTION_STARTED = "context.compaction.started"
    COMPACTION_FINISHED = "context.compaction.finished"
    MESSAGE_DELTA = "message.delta"
    TOOL_CALL = "tool.call"
    TOOL_RESULT = "tool.result"
    MESSAGE_COMPLETED = "message.completed"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """An attempt of the run has begun; `run` as it was then."""

    type: ClassVar[EventType] = EventType.RUN_STARTED
    run: Run


@dataclass(frozen=True, slots=True)
class AnswerReset:
    """What readers were shown of the run does not count any more: attempt number `attempt` begins anew."""

    type: ClassVar[EventType] = EventType.RESET
    attempt: int


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """Room is being made, for `cause`; the prompt has `tokens` (the model's) as it stands."""

    type: ClassVar[EventType] = EventType.COMPACTION_STARTED
    cause: str
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """What reducing the context came to.

    `detail` says why no more was achieved. `fired` are the stages that changed the view, in order. Tokens are the
    model's. `through_position` is the position that the summary in use reaches.
    """

    type: ClassVar[EventType] = EventType.COMPACTION_FINISHED
    cause: str
    outcome: CompactionOutcome
    detail: str
    fired: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    through_position: int


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """A further piece of the answer's text."""

    type: ClassVar[EventType] = EventType.MESSAGE_DELTA
    text: str


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """A message of the model is whole and stored."""

    type: ClassVar[EventType] = EventType.MESSAGE_COMPLETED
    message: Message


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model asks for a tool call."""

    type: ClassVar[EventType] = EventType.TOOL_CALL
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """The result of a tool call is stored, as `message`."""

    type: ClassVar[EventType] = EventType.TOOL_RESULT
    message: Message


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event of a run: `run` with its final status, and its answer if it has one."""

    run: Run
    answer: Message | None = None

    @property
    def type(self) -> EventType:
        """The name of this end."""
        return end_type(self.run.status)


def end_type(status: RunStatus) -> EventType:
    """Return the name of a run's last event, where it ends with this status."""
    match status:
        case RunStatus.SUCCEEDED:
            return EventType.RUN_COMPLETED
        case RunStatus.CANCELLED:
            return EventType.RUN_CANCELLED
        case _:
            return EventType.RUN_FAILED


Event: TypeAlias = (
    RunStarted
    | AnswerReset
    | CompactionStarted
    | CompactionFinished
    | MessageDelta
    | MessageCompleted
    | ToolCalled
    | ToolAnswered
    | RunEnded
)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event before it is stored, with its sequence number within the run."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run; `seq` starts at 1 and has no gaps."""

    run_id: RunId
    seq: int
    event: Event

    @property
    def type(self) -> EventType:
        """The event's name."""
        return self.event.type

    @property
    def is_last(self) -> bool:
        """Whether no event can follow this one."""
        return isinstance(self.event, RunEnded)


def ending(run: Run, answer: Message | None) -> tuple[Event, ...]:
    """Return the events with which a run that has ended as `run` says ends: its answer, if it has one, and the end."""
    ended = RunEnded(run, answer)
    return (ended,) if answer is None else (MessageCompleted(answer), ended)
