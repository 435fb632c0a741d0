"""Run events: the progress of a run as its readers see it, numbered within the run.

Events are values that hold whole messages and runs. Storage keeps only their ids (`db/runs/events.py`), and each
interface renders events in its own format.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias

from throughline.domain.basic_types import JsonValue, MessageId, RunId
from throughline.domain.message import Message, ToolCall
from throughline.domain.run import Run, RunStatus
from throughline.domain.summary import CompactionOutcome

REPLAYED_END_SEQ = 999_999_999
"""Sequence number of the last event when events are reconstructed from stored messages.

A reader that has seen this number has seen all events of the run.
"""


class EventType(StrEnum):
    """The event names, as they are stored and sent to clients."""

    RUN_STARTED = "run.started"
    COMPACTION_STARTED = "context.compaction.started"
    COMPACTION_FINISHED = "context.compaction.finished"
    HISTORY_QUOTED = "context.history.quoted"
    MEMORIES_QUOTED = "context.memories.quoted"
    REASONING_DELTA = "reasoning.delta"
    MESSAGE_DELTA = "message.delta"
    TOOL_CALL_DELTA = "tool.call.delta"
    TOOL_CALL = "tool.call"
    TOOL_PROGRESS = "tool.progress"
    TOOL_RESULT = "tool.result"
    GRAPH_EVENT = "graph.event"
    MESSAGE_COMPLETED = "message.completed"
    RUN_WAITING = "run.waiting"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The start of an attempt of the run; `run` is the run at that moment."""

    type: ClassVar[EventType] = EventType.RUN_STARTED
    run: Run

    @property
    def user_message_id(self) -> MessageId:
        """The id under which the run's user message is or will be stored."""
        return self.run.user_message_id


@dataclass(frozen=True, slots=True)
class AnswerReset:
    """The instruction to readers to discard the run's earlier events, because attempt number `attempt` starts again."""

    type: ClassVar[EventType] = EventType.RESET
    attempt: int


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The start of a compaction, triggered by `cause`; `tokens` is the prompt's size as the model counts."""

    type: ClassVar[EventType] = EventType.COMPACTION_STARTED
    cause: str
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionFinished:
    """The result of a compaction.

    `detail` says why no more was achieved. `fired` are the stages that made the prompt smaller, in order. Token numbers
    are the model's. `through_position` is the last position that the adopted summary covers, 0 without a summary.
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
class HistoryQuoted:
    """The notice that the prompt quotes earlier messages of the session that the user's message asks for.

    `scores` are shares of the score of a message with every word of the question, in the order of `positions`.
    `tokens` is what the quotations take, as the model counts.
    """

    type: ClassVar[EventType] = EventType.HISTORY_QUOTED
    positions: tuple[int, ...]
    scores: tuple[float, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class MemoriesQuoted:
    """The notice that the prompt quotes memories of the session's owner that fit the user's message.

    `memory_ids` are in the order of their fit, best first. `tokens` is what they take, as the model counts.
    """

    type: ClassVar[EventType] = EventType.MEMORIES_QUOTED
    memory_ids: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the model's reasoning before an answer or a step, which is no part of the message."""

    type: ClassVar[EventType] = EventType.REASONING_DELTA
    message_id: MessageId
    text: str


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """The next piece of the text of an answer or a step. `message_id` is the id under which it will be stored."""

    type: ClassVar[EventType] = EventType.MESSAGE_DELTA
    message_id: MessageId
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of a tool call's arguments while the model writes them; the call is not stored yet.

    `index` is the call's position in its step, counted from 0. ToolCalled has the whole call, and counts: a call that
    is cut off is not made.
    """

    type: ClassVar[EventType] = EventType.TOOL_CALL_DELTA
    message_id: MessageId
    index: int
    call_id: str
    name: str
    arguments_delta: str


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """The notice that a model's message is complete and stored."""

    type: ClassVar[EventType] = EventType.MESSAGE_COMPLETED
    message: Message


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model's request for a tool call, in the stored message `message_id`."""

    type: ClassVar[EventType] = EventType.TOOL_CALL
    call: ToolCall
    message_id: MessageId


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """How far a running tool call is, as the tool's server says: `progress` of `total`, None if that is unknown.

    `message` says what the call does now, '' if the server does not say.
    """

    type: ClassVar[EventType] = EventType.TOOL_PROGRESS
    call_id: str
    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """The notice that a tool call's result is stored, as `message`."""

    type: ClassVar[EventType] = EventType.TOOL_RESULT
    message: Message


@dataclass(frozen=True, slots=True)
class GraphEvent:
    """What a node of the agent's own graph has written to its custom stream."""

    type: ClassVar[EventType] = EventType.GRAPH_EVENT
    data: JsonValue


@dataclass(frozen=True, slots=True)
class RunWaiting:
    """The notice that the run waits for something from outside.

    `run` is the run at that moment, with its wait. `message_id` is that of the message whose calls wait. Once the run
    is resumed, RunStarted follows.
    """

    type: ClassVar[EventType] = EventType.RUN_WAITING
    run: Run
    message_id: MessageId


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event of a run: the run with its final status, and its answer if there is one."""

    run: Run
    answer: Message | None = None

    @property
    def type(self) -> EventType:
        """The event name that matches the run's final status."""
        return end_type(self.run.status)


def end_type(status: RunStatus) -> EventType:
    """Return the name of the last event of a run that ended with this status."""
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
    | HistoryQuoted
    | MemoriesQuoted
    | ReasoningDelta
    | MessageDelta
    | ToolCallDelta
    | MessageCompleted
    | ToolCalled
    | ToolProgress
    | ToolAnswered
    | GraphEvent
    | RunWaiting
    | RunEnded
)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is not stored yet, with its sequence number within the run."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A numbered event of a run; `seq` starts at 1 and has no gaps, except before REPLAYED_END_SEQ."""

    run_id: RunId
    seq: int
    event: Event

    @property
    def type(self) -> EventType:
        return self.event.type

    @property
    def is_last(self) -> bool:
        """Whether no event can follow this one."""
        return isinstance(self.event, RunEnded)

    @property
    def is_pause(self) -> bool:
        """Whether no event follows this one until the run is resumed."""
        return isinstance(self.event, RunWaiting)


def ending(run: Run, answer: Message | None) -> tuple[Event, ...]:
    """Return the closing events of an ended run: MessageCompleted if the run has an answer, then RunEnded."""
    ended = RunEnded(run, answer)
    return (ended,) if answer is None else (MessageCompleted(answer), ended)
