"""The served application, whose every answer is compared with the OpenAPI document."""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeAlias

import httpx
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from fakes.scripted_turns import REPORT, ScriptedTurns
from fakes.stage import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentDefaults, AgentRegistry, load_agents
from throughline.api.front_end import API
from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.explain_context import ContextReport
from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.context.preview import Action, Preview, SegmentToSummarise
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import MessageId, SessionId, UserId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.keys import NewKey, Scope
from throughline.domain.message import Content, Message, NewMessage, Role
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import NO_OVERRIDES
from throughline.domain.run import RunInput
from throughline.domain.service_status import ServiceStatus
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.http.app import CORS_EXPOSED, FrontEnd, create_app
from throughline.http.problem_documents import MEDIA_TYPE
from throughline.http.route_errors import PROBLEM_KINDS
from throughline.http.services import ApiConfig, Readiness, Services
from throughline.llm.registry import ModelRegistry
from throughline.openai.front_end import OPENAI_API
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.recall.history_search import HistorySearch
from throughline.turn.recall.memory_service import MemoryService
from throughline.turn.summary.reread import SummaryCost, SummaryRequest

Json: TypeAlias = dict[str, Any]
Operations: TypeAlias = list[tuple[re.Pattern[str], str, Json]]

_KNOWN: Operations = []
"""The operations of the first application: all applications have the same."""


def check_answers(app: FastAPI) -> Callable[[httpx.Response], Awaitable[None]]:
    """Return a hook of an HTTP client. It fails if an answer of a documented route is not as documented."""

    async def check(response: httpx.Response) -> None:
        documented = _documented(_operations(app), response)
        if documented is None:
            return
        where = f"{response.request.method} {response.request.url.path}: {response.status_code}"
        media_type = response.headers.get("content-type", "").partition(";")[0]
        assert media_type in documented.get("content", {"": {}}), f"{where} has the media type {media_type}"
        sent = {name for name in CORS_EXPOSED if name in response.headers}
        assert sent <= documented.get("headers", {}).keys(), f"{where} has the headers {sent}"
        if media_type == MEDIA_TYPE:
            await response.aread()
            code = response.json()["type"].rpartition("/")[2]
            assert code not in PROBLEM_KINDS or f"`{code}`" in documented["description"], f"{where} {code}"

    return check


def _documented(operations: Operations, response: httpx.Response) -> Json | None:
    """Return the document's entry for an answer, None for routes that are not documented."""
    request = response.request
    for pattern, method, operation in operations:
        if method == request.method and pattern.fullmatch(request.url.path):
            documented: Json = operation["responses"].get(str(response.status_code), operation["responses"]["default"])
            return documented
    return None


def _operations(app: FastAPI) -> Operations:
    """Return form of the path, method and description of each operation, paths without parameters first."""
    if not _KNOWN:
        paths = sorted(app.openapi()["paths"].items(), key=lambda item: item[0].count("{"))
        _KNOWN.extend(
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), method.upper(), operation)
            for path, item in paths
            for method, operation in item.items()
        )
    return _KNOWN


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a bound socket; at the end connections have a second to finish."""
    listener.listen()
    server = _FastStoppingServer(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.stopped.set()
        await task


class _FastStoppingServer(uvicorn.Server):
    """Ends at once: uvicorn looks each tenth of a second whether it shall, and gives connections another one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopped = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets what stands in every answer's head
        await self.stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # those that wait for a request are closed
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        for listener in sockets or []:
            listener.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


LOCAL = ApiConfig(version="0.0.0", is_local_mode=True, no_worker_timeout_seconds=HANG_SECONDS)
KEYED = ApiConfig(version="0.0.0", key_cache_seconds=0.0)
PREVIEW = Preview(
    action=Action.COMPACT,
    cause=CompactionTrigger.THRESHOLD,
    fired=("pruned",),
    tokens=6_900,
    unreduced_tokens=6_900,
    window=8_192,
    usage_percent=84.2,
    threshold_tokens=5_836,
    budget_tokens=6_144,
    floor_too_high=False,
    summarised_through=0,
    summarise=SegmentToSummarise(1, 2),
    messages=(
        ShownMessage(1, Role.USER, MessageVariant.SUMMARISED, 0),
        ShownMessage(3, Role.USER, MessageVariant.WHOLE, 70, pinned=True),
    ),
)
"""What the scripted plan says for every message but "too much", for which there is none."""

WINDOW = ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
"""What is told of every agent that names no window."""


class WallClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class FakePins:
    """Pins that live in memory: each message is a group of its own. `previewed` keeps what plans were asked for.

    `report` and `plan` are what is told of every context.
    """

    database: Database
    report: ContextReport = REPORT
    plan: Preview = PREVIEW
    pinned: set[MessageId] = field(default_factory=set)
    previewed: list[Content | None] = field(default_factory=list)
    limit: int = 2

    async def tell(self, owner_id: UserId, session_id: SessionId) -> ContextReport:
        await self.database.sessions.get(owner_id, session_id)
        return self.report

    async def preview(self, owner_id: UserId, session_id: SessionId, content: Content | None) -> Preview:
        await self.database.sessions.get(owner_id, session_id)
        self.previewed.append(content)
        return self.plan

    async def pin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        message = await self._find(owner_id, session_id, message_id)
        if len(self.pinned) >= self.limit:
            raise InvalidInput("Pins may take a fifth of the window. Take a pin off first.")
        self.pinned.add(message_id)
        return (replace(message, pinned=True),)

    async def unpin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        message = await self._find(owner_id, session_id, message_id)
        self.pinned.discard(message_id)
        return (message,)

    async def _find(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> Message:
        query = MessageQuery(after=None, before=None, limit=200, order="asc")
        page = await self.database.messages.list_messages(owner_id, session_id, query)
        found = next((message for message in page.items if message.id == message_id), None)
        if found is None:
            raise NotFound(f"There is no message {message_id}.")
        return found


@dataclass
class ApiStage:
    """The application, what stands behind it, and how to reach it."""

    database: Database
    turns: ScriptedTurns
    pins: FakePins
    services: Services
    app: FastAPI

    def with_front_ends(self, config: ApiConfig, *front_ends: FrontEnd) -> "ApiStage":
        """Return the stage with these front ends beside the REST interface, and no others."""
        return replace(self, app=create_app(self.services, config, (API, *front_ends)))

    @contextlib.asynccontextmanager
    async def client(self, *, key: str = "", user: str = "") -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that calls the application in this process; streams are not streamed here."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {"On-Behalf-Of": user} if user else {}
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers, event_hooks=self._checks
        ) as client:
            yield client

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that calls the application over a real loopback socket."""
        # Without the protocol asyncio leaves Nagle's algorithm on, which costs 40 ms per answer.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with (
                self.serving(listener),
                httpx.AsyncClient(base_url=url, timeout=HANG_SECONDS, event_hooks=self._checks) as client,
            ):
                yield client

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket, app: ASGIApp | None = None) -> AsyncIterator[None]:
        """Serve the application on a bound socket; `app` is one that stands in front of it."""
        async with serving(app or self.app, listener):
            try:
                yield
            finally:
                self.services.cut_off()

    @property
    def _checks(self) -> dict[str, list[Callable[..., Any]]]:
        return {"response": [check_answers(self.app)]}

    async def key(self, user: str, *scopes: Scope) -> str:
        """Return the secret of a new key."""
        named = NewKey(user_name=user, name=f"key of {user}", scopes=frozenset(scopes or {Scope.READ, Scope.WRITE}))
        return (await self.database.keys.create(named)).secret


@dataclass(frozen=True, slots=True)
class FakeSummaries:
    """Summaries on demand that find nothing to do."""

    database: Database

    async def summarize(self, owner_id: UserId, session_id: SessionId, _request: SummaryRequest) -> CompactionResult:
        session = await self.database.sessions.get(owner_id, session_id)
        return CompactionResult(CompactionOutcome.SKIPPED, session, "There is nothing to summarise yet.", 30, 30)

    async def check(self, owner_id: UserId, session_id: SessionId) -> None:
        await self.database.sessions.get(owner_id, session_id)
        await self.database.summaries.check_lease_free(session_id)

    async def estimate(self, owner_id: UserId, session_id: SessionId, request: SummaryRequest) -> SummaryCost:
        await self.database.sessions.get(owner_id, session_id)
        return SummaryCost(request.first or 1, 40, 40, 2, 9_000, 500, 3.0)


@dataclass(frozen=True, slots=True)
class SentInput:
    """The check of overrides and tools of requests against real agents and models."""

    database: Database
    agents: AgentRegistry

    async def check(self, owner_id: UserId, session_id: SessionId, given: RunInput) -> None:
        if given.overrides != NO_OVERRIDES or given.client_tools:
            session = await self.database.sessions.get(owner_id, session_id)
            await self.check_for(session.agent, given)

    async def check_for(self, agent: str, given: RunInput) -> None:
        tools = make_tool_box(timeout_seconds=HANG_SECONDS, max_result_bytes=100_000)
        await RequestChecker(self.agents, ModelRegistry(), tools).check(agent, given)


def set_stage(
    database: Database,
    config: ApiConfig = LOCAL,
    memories: MemoryService | None = None,
    dependencies: Mapping[str, object] | None = None,
) -> ApiStage:
    """Return the application on `database`; without `memories` they are found by their words alone.

    `dependencies` take the place of those of its services that are played.
    """
    turns, pins, summaries = ScriptedTurns(database), FakePins(database), FakeSummaries(database)

    services = Services(
        database=database,
        memories=memories or MemoryService(database.memories),
        history=HistorySearch(database.history),
        agents=(agents := _agents_among(dependencies)),
        submit=turns.submit,
        report_context=pins.tell,
        check_input=SentInput(database, agents).check,
        check_input_for=SentInput(database, agents).check_for,
        summarize_now=summaries.summarize,
        check_summary=summaries.check,
        estimate_summary=summaries.estimate,
        preview_context=pins.preview,
        pin_message=pins.pin,
        unpin_message=pins.unpin,
        render_metrics=lambda: (b"# nothing yet\n", "text/plain; version=0.0.4; charset=utf-8"),
        check_ready=partial(_check_ready, database),
        read_status=partial(_read_status, database, agents),
        count_messages=_count_messages,
        agent_window=_agent_window,
        clock=WallClock(),
    )
    services = replace(services, **(dependencies or {}))  # type: ignore[arg-type]  # fields by name
    return ApiStage(database, turns, pins, services, create_app(services, config, (API, OPENAI_API)))


async def _check_ready(database: Database) -> Readiness:
    await database.check_ready()
    return Readiness({"database": True})


async def _read_status(database: Database, agents: AgentRegistry) -> ServiceStatus:
    found = await database.status.read()
    return replace(found, database="played", breakers=(), agent_files=agents.describe_files(), tool_servers=())


async def _count_messages(_agent: str, messages: Sequence[NewMessage]) -> tuple[NewMessage, ...]:
    return tuple(replace(message, token_count=7, counter="fake") for message in messages)


async def _agent_window(agent: AgentDefinition) -> ModelWindow:
    written = agent.context.window
    return WINDOW if written is None else ModelWindow(written, WindowOrigin.AGENT_FILE)


def _agents_among(dependencies: Mapping[str, object] | None) -> AgentRegistry:
    given = (dependencies or {}).get("agents")
    return given if isinstance(given, AgentRegistry) else AgentRegistry(_shipped_agents())


@cache
def _shipped_agents() -> tuple[AgentDefinition, ...]:
    """Read the files once. Each stage has a registry of its own, because a registry may change."""
    return load_agents([], AgentDefaults(usage_threshold=0.8, summary_model="")).all()


async def open_session(client: httpx.AsyncClient) -> str:
    """Open a session and return its path."""
    response = await client.post("/v1/sessions", json={"agent": "assistant"})
    assert response.status_code == httpx.codes.CREATED, response.text
    return f"/v1/sessions/{response.json()['id']}"
