"""The served application with real turns of a scripted model behind it, and LangGraph's own clients in front of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.openai_stage import OPEN_AGENT
from fakes.scripted_model import ScriptedModel
from fakes.scripted_turns import played
from fakes.stage import Stage, open_stage
from throughline.agents.definition import AgentDefinition
from throughline.db.database import Database
from throughline.langgraph_api.front_end import LANGGRAPH_API
from throughline.ports.hooks import Tools

AGENT_NAME = "assistant"


@dataclass
class LangGraphStage:
    """What a test of LangGraph's interface has at hand: the model's script, the database, and the clients.

    While a test holds `claims`, runs that are queued stay so. `url` is the address of the interface.
    """

    turns: Stage
    api: ApiStage
    client: LangGraphClient
    http: httpx.AsyncClient
    claims: asyncio.Lock
    url: str

    @property
    def model(self) -> ScriptedModel:
        return self.turns.model

    @property
    def database(self) -> Database:
        return self.turns.database

    async def open_thread(self) -> str:
        """Create a thread and return its id."""
        return (await self.client.threads.create())["thread_id"]

    async def wait(self, thread: str | None, given: Any, **more: Any) -> Any:  # noqa: ANN401  # values of any graph
        """Begin a run with this input and return the values with which it ends or waits."""
        return await self.client.runs.wait(thread, AGENT_NAME, input=given, **more)

    async def state(self, thread: str, **more: Any) -> Any:  # noqa: ANN401  # as the client declares it
        """Return the state of a thread."""
        return await self.client.threads.get_state(thread, **more)

    async def post(self, path: str, body: object) -> httpx.Response:
        """Send a request to a route of the interface."""
        return await self.http.post(f"/langgraph{path}", json=body)


@contextlib.asynccontextmanager
async def open_langgraph_stage(
    database: Database, *, agent: AgentDefinition = OPEN_AGENT, tools: Tools | None = None
) -> AsyncIterator[LangGraphStage]:
    """Serve the application on `database`, with one agent, and play every turn that is submitted or resumed."""
    turns = await open_stage(database, agent=agent, tools=tools)
    claims = asyncio.Lock()
    async with played(turns, claims) as dependencies:
        api = set_stage(database, LOCAL, dependencies=dependencies).with_front_ends(LOCAL, LANGGRAPH_API)
        async with api.served() as http:
            url = f"{str(http.base_url).rstrip('/')}/langgraph"
            async with get_client(url=url) as client:
                yield LangGraphStage(turns, api, client, http, claims, url)


def said(text: str, **more: object) -> dict[str, Any]:
    """Return the input of a run with one message of the user."""
    return {"messages": [{"role": "user", "content": text, **more}]}


def texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the types and texts of the messages of a thread's values."""
    return [(message["type"], message["content"]) for message in values["messages"]]
