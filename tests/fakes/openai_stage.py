"""The served application with real turns of a scripted model behind it, and OpenAI's own client in front of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import openai

from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.scripted_model import ScriptedModel
from fakes.scripted_turns import played
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_servers import PlayedServers
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.domain.prompt import OverrideField
from throughline.http.app import FrontEnd
from throughline.http.services import ApiConfig
from throughline.openai.front_end import OPENAI_API
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
    database: Database,
    *,
    agent: AgentDefinition = OPEN_AGENT,
    tools: Tools | None = None,
    tool_servers: PlayedServers | None = None,
    config: ApiConfig = LOCAL,
    front_ends: Sequence[FrontEnd] = (),
) -> AsyncIterator[OpenAIStage]:
    """Serve the application on `database`, with one agent, and play every turn that is submitted or resumed.

    `front_ends` are served beside REST and OpenAI's interface.
    """
    turns = await open_stage(database, agent=agent, tools=tools)
    turns.dependencies = replace(turns.dependencies, tool_servers=tool_servers or PlayedServers())
    claims = asyncio.Lock()
    async with played(turns, claims) as dependencies:
        api = set_stage(database, config, dependencies=dependencies)
        api = api.with_front_ends(config, OPENAI_API, *front_ends) if front_ends else api
        async with api.served() as http:
            address = f"{str(http.base_url).rstrip('/')}/v1"
            async with openai.AsyncOpenAI(
                base_url=address, api_key="none", max_retries=0, _strict_response_validation=True
            ) as client:
                yield OpenAIStage(turns, api, client, http, claims)


NAME = "chat-1"


class Chat:
    """One chat of the program."""

    def __init__(self, stage: OpenAIStage, header: str = "X-Session-Id", name: str = NAME) -> None:
        self.stage = stage
        self.headers = {header: name}
        self.messages: list[Any] = []

    async def post(
        self, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send the chat as it stands."""
        return await self.stage.http.post(
            "/v1/chat/completions",
            json={"model": "assistant", "messages": self.messages, **(body or {})},
            headers={**self.headers, **(headers or {})},
        )

    async def say(self, text: str, **body: object) -> httpx.Response:
        """Send a message of the user, and keep its answer."""
        self.messages.append({"role": "user", "content": text})
        response = await self.post(body)
        assert response.status_code == httpx.codes.OK, response.text
        self.messages.append(response.json()["choices"][0]["message"])
        return response

    def text(self) -> str:
        return str(self.messages[-1]["content"])
