"""The served application with real turns of a scripted model behind it, and OpenAI's own client in front of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import openai

from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.played_turns import claim_turns
from fakes.scripted_model import ScriptedModel
from fakes.stage import AGENT, CLAIMER, Stage, open_stage
from throughline.agents.definition import AgentDefinition
from throughline.api.http.config import ApiConfig
from throughline.db.database import Database
from throughline.domain.overrides import OverrideField
from throughline.domain.submission import Submission, Submitted
from throughline.ports.tools import Tools
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.take_turn import take_turn

OPEN_AGENT = replace(AGENT, overrides=frozenset(OverrideField) - {OverrideField.MODEL})


@dataclass
class OpenAIStage:
    """What a test of OpenAI's interface has at hand: the model's script, the database, and the clients.

    While a test holds `claims`, runs that are queued stay so.
    """

    turns: Stage
    api: ApiStage
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient
    claims: asyncio.Lock

    @property
    def model(self) -> ScriptedModel:
        return self.turns.model

    @property
    def database(self) -> Database:
        return self.turns.database


@contextlib.asynccontextmanager
async def open_openai_stage(
    database: Database, *, agent: AgentDefinition = OPEN_AGENT, tools: Tools | None = None, config: ApiConfig = LOCAL
) -> AsyncIterator[OpenAIStage]:
    """Serve the application on `database`, with one agent, and play every turn that is submitted or resumed."""
    turns = await open_stage(database, agent=agent, tools=tools)
    played: set[asyncio.Task[None]] = set()

    async def submit(submission: Submission) -> Submitted:
        submitted = await database.runs.submit(submission, CLAIMER)
        if submitted.claimed is not None:
            task = asyncio.create_task(take_turn(turns.turn_start(submitted.claimed)))
            played.add(task)
            task.add_done_callback(played.discard)
        return submitted

    parts = turns.dependencies
    checker = RequestChecker(parts.agents, parts.models, parts.tools)
    dependencies = {"agents": parts.agents, "submit": submit, "check_input_for": checker.check}
    api = set_stage(database, config, dependencies=dependencies)
    claims = asyncio.Lock()
    claiming = asyncio.create_task(claim_turns(turns, claims))
    try:
        async with api.served() as http:
            address = f"{str(http.base_url).rstrip('/')}/v1"
            async with openai.AsyncOpenAI(
                base_url=address, api_key="none", max_retries=0, _strict_response_validation=True
            ) as client:
                yield OpenAIStage(turns, api, client, http, claims)
    finally:
        claiming.cancel()
        await asyncio.gather(claiming, *played, return_exceptions=True)
