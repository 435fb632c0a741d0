"""Turns that are played as a test wrote them down, or that wait, through the real repositories."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fakes.conversations import claim_next
from fakes.event_log import MESSAGE_ID
from fakes.scripted_model import Call
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import until
from throughline.agents.definition import AgentDefinition
from throughline.context.explain_context import ContextReport, NextAction, SummariserReport
from throughline.db.database import Database
from throughline.domain.basic_types import RunId
from throughline.domain.events import Event, MessageDelta, NewEvent, RunStarted, ToolAnswered
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.reasoning import Reasoning
from throughline.domain.run import (
    ClaimedRun,
    Claimer,
    Outcome,
    Run,
    RunError,
    RunInput,
    RunStatus,
    Submission,
    Submitted,
    user_message,
)
from throughline.domain.tool import ApprovalDecision, Resolution, WaitKind
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.hooks import Tools
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.take_turn import take_turn
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


WEATHER = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {"town": {"type": "string"}}})
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
DELETES = ToolCall("call_2", "delete", '{"file": "a.txt"}')
CAREFUL = replace(AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
APPROVED = Resolution("call_2", decision=ApprovalDecision.APPROVE, author="anna")


async def send(stage: Stage, text: str = "hi", *, tools: tuple[ToolSpec, ...] = (WEATHER,)) -> Run:
    """Submit a message with client tools and play its turn; return the run."""
    given = RunInput(text, client_tools=tools)
    submission = Submission(stage.owner_id, stage.session.id, given, Source.API, fingerprint=text)
    run = (await stage.database.runs.submit(submission, None)).run
    return await play(stage, run)


async def play(stage: Stage, run: Run) -> Run:
    claimed = await stage.claim()
    assert claimed.run.id == run.id
    await take_turn(stage.turn_start(claimed))
    return await stage.database.runs.get_run(stage.owner_id, run.id)


async def resume(stage: Stage, run: Run, *given: Resolution) -> Run:
    return (await stage.database.runs.resume(stage.owner_id, run.id, given)).run


async def careful_stage(database: Database, tools: Tools, *, agent: AgentDefinition = CAREFUL) -> tuple[Stage, Run]:
    """Return a stage whose agent waits for the approval of a call."""
    stage = await open_stage(database, agent=agent, tools=tools)
    stage.model.script(Call((DELETES,)))
    return stage, await send(stage, tools=())


def kinds(run: Run) -> dict[str, WaitKind]:
    return {} if run.waiting_for is None else {call.id: call.kind for call in run.waiting_for.calls}


def results(messages: Sequence[Message]) -> list[tuple[str | None, object]]:
    return [(message.tool_call_id, message.content) for message in messages if message.role is Role.TOOL]


@contextlib.asynccontextmanager
async def played(turns: Stage, claims: asyncio.Lock | None = None) -> AsyncIterator[dict[str, object]]:
    """Play turns inside the block; yield the services by which the interface finds agents and checks requests.

    A turn that is submitted begins at once if the session is free. No queued one does while a test holds `claims`.
    """
    parts = turns.dependencies
    checker = RequestChecker(parts.agents, parts.models, parts.tools)
    begun: set[asyncio.Task[None]] = set()

    async def submit(submission: Submission) -> Submitted:
        submitted = await turns.database.runs.submit(submission, CLAIMER)
        if submitted.claimed is not None:
            task = asyncio.create_task(take_turn(turns.turn_start(submitted.claimed)))
            begun.add(task)
            task.add_done_callback(begun.discard)
        return submitted

    claiming = asyncio.create_task(_claim_turns(turns, claims or asyncio.Lock()))
    try:
        yield {"agents": parts.agents, "submit": submit, "check_input_for": checker.check}
    finally:
        claiming.cancel()
        await asyncio.gather(claiming, *begun, return_exceptions=True)


async def _claim_turns(turns: Stage, claims: asyncio.Lock) -> None:
    """Play the turns of runs that are queued, one after the other, as a worker does.

    None is claimed while a test holds `claims`.
    """
    while True:
        claimed = None
        async with claims:
            with ErrorBoundary(lambda *_args, **_fields: None):
                claimed = await claim_next(turns.database.runs, CLAIMER)
        if claimed is None:
            await asyncio.sleep(0.02)
        else:
            await take_turn(turns.turn_start(claimed))
