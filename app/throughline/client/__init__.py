"""Client of Throughline for other Python programs: it submits messages and reads answers and events.

Example:
    async with connect(user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "Hello!")
        print((await client.wait(run.id)).answer())

The client uses only the database: it needs no HTTP and loads no model. Any `throughline serve` or `throughline worker`
on the same database runs the turns. The names below are the whole public interface.
"""

from throughline.client.answer import Ended, NotAnswered
from throughline.client.client import Client
from throughline.client.connection import connect
from throughline.client.limits import Limits
from throughline.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    NotFound,
    NoWorkerAvailable,
    QueueFull,
    SessionBusy,
    SettingInvalid,
    TemporaryError,
    ThroughlineError,
)
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    EventType,
    HistoryQuoted,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.ids import RunId, SessionId
from throughline.domain.message import Message, Source, ToolCall
from throughline.domain.reasoning import Reasoning
from throughline.domain.run import Run, RunStatus
from throughline.domain.session import Session
from throughline.domain.submission import OnBusy

__all__ = [
    "AnswerReset",
    "Client",
    "CompactionFinished",
    "CompactionStarted",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "Ended",
    "EventType",
    "HistoryQuoted",
    "IdempotencyKeyReused",
    "InvalidInput",
    "Limits",
    "Message",
    "MessageCompleted",
    "MessageDelta",
    "NoWorkerAvailable",
    "NotAnswered",
    "NotFound",
    "OnBusy",
    "QueueFull",
    "Reasoning",
    "ReasoningDelta",
    "Run",
    "RunEnded",
    "RunEvent",
    "RunId",
    "RunStarted",
    "RunStatus",
    "Session",
    "SessionBusy",
    "SessionId",
    "SettingInvalid",
    "Source",
    "TemporaryError",
    "ThroughlineError",
    "ToolAnswered",
    "ToolCall",
    "ToolCallDelta",
    "ToolCalled",
    "connect",
]
