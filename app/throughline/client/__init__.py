"""Client of Throughline for other Python programs: it submits messages and reads answers and events.

Example:
    async with connect(user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "Hello!")
        print((await client.wait(run.id)).answer())

The client uses only the database: it needs no HTTP and loads no model. Any `throughline serve` or `throughline worker`
on the same database runs the turns. The names below are the whole public interface.
"""

from throughline.client.arguments import Ended, Limits, NotAnswered, answer, approve, edit, reject, result
from throughline.client.client import Client
from throughline.client.connection import connect
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    IdempotencyKeyReused,
    InvalidInput,
    NotFound,
    NoWorkerAvailable,
    QueueFull,
    RunNotWaiting,
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
    GraphEvent,
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
    ToolCalled,
    ToolProgress,
)
from throughline.domain.message import Message, Source, ToolCall
from throughline.domain.reasoning import Reasoning
from throughline.domain.run import OnBusy, Run, RunStatus
from throughline.domain.session import Session
from throughline.domain.tool import ApprovalDecision as Decision
from throughline.domain.tool import AwaitedCall, Resolution, Wait, WaitKind

__all__ = [
    "AnswerReset",
    "AwaitedCall",
    "Client",
    "CompactionFinished",
    "CompactionStarted",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "Decision",
    "Ended",
    "EventType",
    "GraphEvent",
    "HistoryQuoted",
    "IdempotencyKeyReused",
    "InvalidInput",
    "Limits",
    "MemoriesQuoted",
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
    "Resolution",
    "Run",
    "RunEnded",
    "RunEvent",
    "RunId",
    "RunNotWaiting",
    "RunStarted",
    "RunStatus",
    "RunWaiting",
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
    "ToolProgress",
    "Wait",
    "WaitKind",
    "answer",
    "approve",
    "connect",
    "edit",
    "reject",
    "result",
]
