"""Throughline from other programs of yours: messages in, answers and events out, over the database alone.

    async with connect(user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "Hello!")
        print((await client.wait(run.id)).answer())

No HTTP is spoken and no model loaded here: the turns are taken by any `throughline serve` or `throughline worker` on
the same database. The names below are the whole interface.
"""

from app.client.answer import Ended, NotAnswered
from app.client.client import Client
from app.client.connection import connect
from app.client.limits import Limits
from app.domain.errors import (
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
from app.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    EventType,
    MessageCompleted,
    MessageDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolAnswered,
    ToolCalled,
)
from app.domain.ids import RunId, SessionId
from app.domain.message import Message, Source, ToolCall
from app.domain.run import OnBusy, Run, RunStatus
from app.domain.session import Session

__all__ = [
    "AnswerReset",
    "Client",
    "CompactionFinished",
    "CompactionStarted",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "Ended",
    "EventType",
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
    "ToolCalled",
    "connect",
]
