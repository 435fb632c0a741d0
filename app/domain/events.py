"""Run events: what a reader of a run sees, numbered by sequence within the run."""

from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.ids import RunId
from app.domain.json_types import JsonObject


class EventType(StrEnum):
    """The closed set of event names on the wire."""

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

    @property
    def is_last(self) -> bool:
        """Whether no event can follow this one."""
        return self in {EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run; `seq` starts at 1 and has no gaps."""

    run_id: RunId
    seq: int
    type: EventType
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A run event before it is stored, with its sequence number within the run."""

    seq: int
    type: EventType
    data: JsonObject
