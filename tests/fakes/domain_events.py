"""One event of each type, as turns make them."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from fakes.scripted_turns import REPORT
from throughline.domain.basic_types import MessageId, RunId, SessionId, UserId
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    HistoryQuoted,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Run, RunError, RunInput, RunStatus
from throughline.domain.summary import CompactionOutcome
from throughline.domain.tool import AwaitedCall, Wait, WaitKind
from throughline.wire.context import ContextOut

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
STEP_ID = MessageId(UUID(int=6))
CALL = ToolCall("call_1", "calculator", '{"expression": "2+3"}')
RUN = Run(
    id=RunId(UUID(int=1)),
    session_id=SessionId(UUID(int=2)),
    owner_id=UserId(UUID(int=3)),
    agent="assistant",
    seq=1,
    status=RunStatus.RUNNING,
    input=RunInput("What is 2+3?"),
    source=Source.API,
    created_at=NOW,
    user_message_id=MessageId(UUID(int=5)),
    started_at=NOW,
    usage=Usage(120, 4),
)
ANSWER = Message(
    id=MessageId(UUID(int=4)),
    session_id=RUN.session_id,
    position=4,
    role=Role.ASSISTANT,
    content="5",
    source=Source.API,
    created_at=NOW,
    run_id=RUN.id,
)
RESULT = replace(ANSWER, position=3, role=Role.TOOL, tool_call_id=CALL.id, name=CALL.name)
WAITING = replace(
    RUN, status=RunStatus.WAITING, wait=Wait((AwaitedCall(CALL, WaitKind.APPROVAL),), until=NOW, fence=1), wait_count=1
)
SUCCEEDED = replace(
    RUN, status=RunStatus.SUCCEEDED, finished_at=NOW, message_id=ANSWER.id, context=ContextOut.render(REPORT)
)
FAILED = replace(RUN, status=RunStatus.FAILED, finished_at=NOW, error=RunError("model_refused", "The model declined."))
CANCELLED = replace(RUN, status=RunStatus.CANCELLED, finished_at=NOW)
EVENTS: tuple[Event, ...] = (
    RunStarted(RUN),
    CompactionStarted("threshold", 6_900),
    CompactionFinished("threshold", CompactionOutcome.ADOPTED, "", ("pruned",), 6_900, 2_100, 40),
    HistoryQuoted((21, 7), (0.9, 0.5), 80),
    ReasoningDelta(ANSWER.id, "I add them."),
    MessageDelta(ANSWER.id, "5"),
    ToolCallDelta(STEP_ID, 0, CALL.id, CALL.name, '{"expression"'),
    ToolCalled(CALL, STEP_ID),
    ToolAnswered(RESULT),
    MessageCompleted(ANSWER),
    RunWaiting(WAITING, STEP_ID),
    RunEnded(SUCCEEDED, ANSWER),
    RunEnded(FAILED),
    RunEnded(CANCELLED, ANSWER),
    AnswerReset(2),
)
