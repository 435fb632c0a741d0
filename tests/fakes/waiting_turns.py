"""Turns that wait for something from outside, on a stage: sending, playing and resuming them."""

from collections.abc import Sequence
from dataclasses import replace

from fakes.scripted_model import Call
from fakes.stage import AGENT, Stage, open_stage
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import Run, RunInput, Submission
from throughline.domain.tool import Decision, Resolution, WaitKind
from throughline.ports.hooks import Tools
from throughline.turn.take_turn import take_turn

WEATHER = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {"town": {"type": "string"}}})
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
DELETES = ToolCall("call_2", "delete", '{"file": "a.txt"}')
CAREFUL = replace(AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
APPROVED = Resolution("call_2", decision=Decision.APPROVE, author="anna")


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
