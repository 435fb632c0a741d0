"""The served application with the AI SDK's routes, and real turns of a scripted model behind it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx

from fakes.ai_sdk_client import UIChat
from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.scripted_model import ScriptedModel
from fakes.scripted_turns import played
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_servers import PlayedServers
from throughline.agents.definition import AgentDefinition
from throughline.ai_sdk.front_end import AI_SDK
from throughline.db.database import Database
from throughline.ports.hooks import Tools


@dataclass
class ChatStage:
    """What a test of the AI SDK's routes has at hand. While a test holds `claims`, runs that are queued stay so."""

    turns: Stage
    api: ApiStage
    http: httpx.AsyncClient
    claims: asyncio.Lock

    @property
    def model(self) -> ScriptedModel:
        return self.turns.model

    def chat(self, name: str = "chat-1", *, sends_newest: bool = False) -> UIChat:
        return UIChat(self.http, name, sends_newest=sends_newest)


@contextlib.asynccontextmanager
async def open_chat_stage(
    database: Database,
    *,
    agent: AgentDefinition = AGENT,
    tools: Tools | None = None,
    tool_servers: PlayedServers | None = None,
) -> AsyncIterator[ChatStage]:
    """Serve the application on `database`, with one agent, and play every turn that is submitted or resumed."""
    turns = await open_stage(database, agent=agent, tools=tools)
    turns.dependencies = replace(turns.dependencies, tool_servers=tool_servers or PlayedServers())
    claims = asyncio.Lock()
    async with played(turns, claims) as dependencies:
        api = set_stage(database, LOCAL, dependencies=dependencies).with_front_ends(LOCAL, AI_SDK)
        async with api.served() as http:
            yield ChatStage(turns, api, http, claims)
