"""Turns that are played as a test wrote them down, through the real repositories."""

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from fakes.event_log import MESSAGE_ID
from fakes.waiting import until
from throughline.context.explain_context import ContextReport, NextAction, SummariserReport
from throughline.db.database import Database
from throughline.domain.basic_types import RunId
from throughline.domain.events import Event, MessageDelta, NewEvent, RunStarted, ToolAnswered
from throughline.domain.message import NewMessage, Role
from throughline.domain.reasoning import Reasoning
from throughline.domain.run import (
    ClaimedRun,
    Claimer,
    Outcome,
    Run,
    RunError,
    RunStatus,
    Submission,
    Submitted,
    user_message,
)
from throughline.wire.context import ContextOut

CLAIMER = Claimer("scripted", 30.0)
Step: TypeAlias = Event | NewMessage
REPORT = ContextReport(
    agent="assistant",
    model="offline",
    context_window=8192,
    response_reserve=2048,
    system_tokens=10,
    tools_tokens=0,
    summary_tokens=0,
    message_tokens=20,
    total_tokens=30,
    unreduced_tokens=30,
    last_stage=None,
    threshold_tokens=5836,
    usage_percent=0.4,
    counted_from_position=0,
    messages_since_summary=2,
    messages_threshold=30,
    messages_percent=6.7,
    tokens_since_summary=20,
    tokens_threshold=128_000,
    tokens_percent=0.0,
    will_trigger=False,
    next_action=NextAction.NONE,
    next_trigger=None,
    summary_count=0,
    last_summary_at=None,
    estimated_response_tokens=10,
    summary=None,
    prepared=None,
    summariser=SummariserReport("offline", "closed", 0),
    summary_failure=None,
)


@dataclass(frozen=True)
class Script:
    """What a turn tells between its start and its end, and the answer it ends with.

    A message among the steps is the result of a tool: it is stored, and that is told.
    """

    steps: tuple[Step, ...]
    answer: str
    reasoning: Reasoning | None = None


def said(*pieces: str) -> Script:
    """Return the script of an answer that comes in `pieces`."""
    return Script(tuple(MessageDelta(MESSAGE_ID, piece) for piece in pieces), "".join(pieces))


@dataclass
class ScriptedTurns:
    """Stores submissions and plays their turns through the real repositories.

    Each turn takes the next of `scripts`; without one it says `answer`. `error` makes the next turns fail; `has_worker`
    False leaves them queued; a turn sets `has_begun` and then stops before its end until `may_end` is set. One whose
    run is cancelled until then ends so. With `awaits_reader` a turn begins once somebody follows it: one that is over
    before has its reader wait for a look at the table.
    """

    database: Database
    answer: str = "Hello back."
    scripts: list[Script] = field(default_factory=list)
    error: RunError | None = None
    has_worker: bool = True
    awaits_reader: bool = False
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    is_cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list["asyncio.Task[Run]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_end.set()
        self.database.notifier.on_cancel(self._note_cancel)

    async def submit(self, submission: Submission) -> Submitted:
        submitted = await self.database.runs.submit(submission, CLAIMER if self.has_worker else None)
        if submitted.claimed is not None:
            self.tasks.append(asyncio.create_task(self.play(submitted.claimed)))
        return submitted

    async def play(self, claimed: ClaimedRun) -> Run:
        run, lease, seq = claimed.run, claimed.lease, claimed.next_event
        script = self.scripts.pop(0) if self.scripts else said(self.answer)
        if self.awaits_reader:
            await until(lambda: self.database.notifier.has_readers or not self.awaits_reader)
        await self.database.messages.append_message(lease, "user", user_message(run))
        told = [RunStarted(run), *[await self._told(claimed, step) for step in script.steps]]
        await self.database.events.append_events(lease, [NewEvent(seq + n, event) for n, event in enumerate(told)])
        self.has_begun.set()
        await self.may_end.wait()

        return await self.database.runs.finish(lease, self._outcome(run, script), (), seq + len(told))

    async def settle(self) -> None:
        """Have all turns end, whether anybody follows them or not."""
        self.awaits_reader = False
        self.may_end.set()
        await asyncio.gather(*self.tasks)

    async def _told(self, claimed: ClaimedRun, step: Step) -> Event:
        if not isinstance(step, NewMessage):
            return step
        append = self.database.messages.append_message
        return ToolAnswered(await append(claimed.lease, f"tool:{step.tool_call_id}", step))

    def _outcome(self, run: Run, script: Script) -> Outcome:
        if self.is_cancelled.is_set():
            return Outcome(RunStatus.CANCELLED)
        if self.error is not None:
            return Outcome(RunStatus.FAILED, error=self.error)
        answer = NewMessage(role=Role.ASSISTANT, content=script.answer, source=run.source, reasoning=script.reasoning)
        return Outcome(RunStatus.SUCCEEDED, answer=answer, context=ContextOut.render(REPORT))

    def _note_cancel(self, _run_id: RunId) -> None:
        self.is_cancelled.set()
