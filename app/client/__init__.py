"""Throughline from other programs of yours: messages in, answers and events out, over the database alone.

    async with connect(user="anna") as client:
        session = await client.new_session("assistant")
        run = await client.submit(session.id, "Hello!")
        print((await client.wait(run.id)).text)

No HTTP is spoken and no model loaded here: the turns are taken by any `throughline serve` or `throughline worker` on
the same database. The names below are the whole interface.
"""

from app.client.answer import Ended
from app.client.client import Client
from app.client.connection import connect
from app.domain.errors import ThroughlineError
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
from app.domain.message import Message, ToolCall
from app.domain.run import OnBusy, Run, RunStatus
from app.domain.session import Session

__all__ = [
    "AnswerReset",
    "Client",
    "CompactionFinished",
    "CompactionStarted",
    "Ended",
    "EventType",
    "Message",
    "MessageCompleted",
    "MessageDelta",
    "OnBusy",
    "Run",
    "RunEnded",
    "RunEvent",
    "RunStarted",
    "RunStatus",
    "Session",
    "ThroughlineError",
    "ToolAnswered",
    "ToolCall",
    "ToolCalled",
    "connect",
]
