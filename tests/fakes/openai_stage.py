"""The served application with real turns of a scripted model behind it, and OpenAI's own client in front of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import openai

from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.played_turns import played
from fakes.scripted_model import ScriptedModel
from fakes.stage import AGENT, Stage, open_stage
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.prompt import OverrideField
from throughline.http.services import ApiConfig
from throughline.ports.hooks import Tools

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
    claims = asyncio.Lock()
    async with played(turns, claims) as dependencies:
        api = set_stage(database, config, dependencies=dependencies)
        async with api.served() as http:
            address = f"{str(http.base_url).rstrip('/')}/v1"
            async with openai.AsyncOpenAI(
                base_url=address, api_key="none", max_retries=0, _strict_response_validation=True
            ) as client:
                yield OpenAIStage(turns, api, client, http, claims)
