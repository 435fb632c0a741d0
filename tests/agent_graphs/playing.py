"""Turns of agents with graphs, played against a strict provider with a small window."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.script import ScriptedCall, ScriptStep
from fakes.stage import AGENT, Stage, agent_on, open_double_stage
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.run import Run
from throughline.turn.take_turn import take_turn

MODULE = "agent_graphs.written_graphs"


def graph_agent(name: str, *, tools: Sequence[str] = ()) -> AgentDefinition:
    return replace(AGENT, graph=f"{MODULE}:{name}", tools=tuple(tools), client_tools=False)


@asynccontextmanager
async def small_window(database: Database, double: ProviderDouble, name: str) -> AsyncIterator[Stage]:
    """Open a stage with the graph as an agent in a window of 8,000 tokens."""
    agent = replace(
        agent_on(double, "openai:double-8000-cl100k", window=8_000, response_reserve=600), graph=f"{MODULE}:{name}"
    )
    async with open_double_stage(database, agent) as stage:
        yield stage


def calling(number: int, name: str, arguments: str) -> ScriptStep:
    return ScriptStep(calls=(ScriptedCall(f"call_{number}", name, arguments),))


async def play(stage: Stage, run: Run) -> Run:
    await take_turn(stage.turn_start(await stage.claim()))
    return await stage.database.runs.get_run(stage.owner_id, run.id)


async def die_in_request(stage: Stage, double: ProviderDouble, request: int) -> None:
    """Play the claimed turn until the double gets so many requests, and then let its process die."""
    claimed = await stage.claim()
    before = len(double.requests)
    turn = asyncio.create_task(take_turn(stage.turn_start(claimed)))
    async with asyncio.timeout(HANG_SECONDS):
        while len(double.requests) < before + request and not turn.done():
            await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await stage.database.runs.give_back(claimed.lease)
