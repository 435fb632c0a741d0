"""A stage for tests of the HTTP door: the real application on a real database, with scripted turns behind it."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache

import httpx
import uvicorn
from fastapi import FastAPI

from app.agents.registry import AgentDefaults, AgentRegistry, load_agents
from app.api.app import create_app
from app.api.http.config import ApiConfig
from app.api.http.services import Readiness, Services
from app.context.explain import ContextReport, NextAction, SummariserReport, report_json
from app.db.database import Database
from app.db.sessions.messages import MessageQuery
from app.domain.errors import InvalidInput, NotFound
from app.domain.events import MessageDelta, NewEvent, RunStarted
from app.domain.ids import MessageId, SessionId, UserId
from app.domain.json_types import JsonObject, JsonValue
from app.domain.keys import NewKey
from app.domain.message import Content, Message, NewMessage, Role
from app.domain.principal import Scope
from app.domain.run import ClaimedRun, Claimer, Outcome, Run, RunError, RunStatus, Submission, Submitted
from app.memories.keeper import MemoryKeeper
from app.summary.summarize_now import CompactionResult
from fakes.waiting import HANG_SECONDS

CLAIMER = Claimer("scripted", 30.0)
LOCAL = ApiConfig(version="0.0.0", is_local_mode=True, no_worker_timeout_seconds=HANG_SECONDS)
KEYED = ApiConfig(version="0.0.0", key_cache_seconds=0.0)
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
    last_rung=None,
    threshold_tokens=5836,
    usage_percent=0.4,
    messages_since_summary=2,
    messages_threshold=30,
    messages_percent=6.7,
    tokens_since_summary=20,
    tokens_threshold=128_000,
    tokens_percent=0.0,
    will_trigger=False,
    next_action=NextAction.NONE,
    summary_count=0,
    last_summary_at=None,
    estimated_response_tokens=10,
    summary=None,
    prepared=None,
    summariser=SummariserReport("offline", "closed", 0),
)


PREVIEW: dict[str, JsonValue] = {
    "action": "compact",
    "cause": "threshold",
    "fired": ["pruned"],
    "tokens": 6_900,
    "unreduced_tokens": 6_900,
    "window": 8_192,
    "usage_percent": 84.2,
    "threshold_tokens": 5_836,
    "budget_tokens": 6_144,
    "floor_too_high": False,
    "summarised_through": 0,
    "summarise": {"from_position": 1, "through_position": 2, "message_count": 2},
    "messages": [
        {
            "position": 1,
            "role": "user",
            "form": "summarised",
            "reason": "the summary stands for it",
            "tokens": 0,
            "pinned": False,
        },
        {
            "position": 3,
            "role": "user",
            "form": "whole",
            "reason": "pinned: always shown",
            "tokens": 70,
            "pinned": True,
        },
    ],
}
"""What the scripted plan says for every message but "too much", for which there is none."""


class WallClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class ScriptedTurns:
    """Stores submissions and plays their turns through the real repositories.

    `error` makes the next turns fail; `has_worker` False leaves them queued; a turn sets `has_begun` and then stops
    before its end until `may_end` is set.
    """

    database: Database
    answer: str = "Hello back."
    error: RunError | None = None
    has_worker: bool = True
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list["asyncio.Task[Run]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_end.set()

    async def submit(self, submission: Submission) -> Submitted:
        submitted = await self.database.runs.submit(submission, CLAIMER if self.has_worker else None)
        if submitted.claimed is not None:
            self.tasks.append(asyncio.create_task(self.play(submitted.claimed)))
        return submitted

    async def play(self, claimed: ClaimedRun) -> Run:
        run, lease, seq = claimed.run, claimed.lease, claimed.next_event
        user = NewMessage(role=Role.USER, content=run.input.content, source=run.source, metadata=run.input.metadata)
        await self.database.messages.append_message(lease, "user", user)
        started = NewEvent(seq, RunStarted(run))
        delta = NewEvent(seq + 1, MessageDelta(self.answer))
        await self.database.events.append_events(lease, [started, delta])
        self.has_begun.set()
        await self.may_end.wait()

        return await self.database.runs.finish(lease, self._outcome(run), (), seq + 2)

    def _outcome(self, run: Run) -> Outcome:
        if self.error is not None:
            return Outcome(RunStatus.FAILED, error=self.error)
        answer = NewMessage(role=Role.ASSISTANT, content=self.answer, source=run.source)
        return Outcome(RunStatus.SUCCEEDED, answer=answer, context=report_json(REPORT))

    async def settle(self) -> None:
        self.may_end.set()
        await asyncio.gather(*self.tasks)


@dataclass
class FakePins:
    """Pins that live in memory: each message is a group of its own. `previewed` keeps what plans were asked for."""

    database: Database
    pinned: set[MessageId] = field(default_factory=set)
    previewed: list[Content | None] = field(default_factory=list)
    limit: int = 2

    async def preview(self, owner_id: UserId, session_id: SessionId, content: Content | None) -> JsonObject:
        await self.database.sessions.get(owner_id, session_id)
        self.previewed.append(content)
        return PREVIEW

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

    @contextlib.asynccontextmanager
    async def client(self, *, key: str = "", user: str = "") -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that calls the application in this process; streams are not streamed here."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {"On-Behalf-Of": user} if user else {}
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            yield client

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client that calls the application over a real loopback socket."""
        # Without the protocol asyncio leaves Nagle's algorithm on, which costs 40 ms per answer.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            config = uvicorn.Config(self.app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                async with httpx.AsyncClient(base_url=url, timeout=HANG_SECONDS) as client:
                    yield client
            finally:
                self.services.cut_off()
                server.should_exit = True
                await serving

    async def key(self, user: str, *scopes: Scope) -> str:
        """Return the secret of a new key."""
        named = NewKey(user_name=user, name=f"key of {user}", scopes=frozenset(scopes or {Scope.READ, Scope.WRITE}))
        return (await self.database.keys.create(named)).secret


def set_stage(database: Database, config: ApiConfig = LOCAL, memories: MemoryKeeper | None = None) -> ApiStage:
    """Return the application on `database`; without `memories` they are found by their words alone."""
    turns, pins = ScriptedTurns(database), FakePins(database)

    async def report_context(owner_id: UserId, session_id: SessionId) -> ContextReport:
        await database.sessions.get(owner_id, session_id)
        return REPORT

    async def summarize_now(owner_id: UserId, session_id: SessionId, _instructions: str) -> CompactionResult:
        session = await database.sessions.get(owner_id, session_id)
        return CompactionResult("skipped", "There is nothing to summarise yet.", 30, 30, session)

    async def count_message(_agent: str, message: NewMessage) -> NewMessage:
        return replace(message, token_count=7, counter="fake")

    async def check_ready() -> Readiness:
        await database.check_ready()
        return Readiness({"database": True})

    services = Services(
        database=database,
        memories=memories or MemoryKeeper(database.memories),
        agents=_shipped_agents(),
        submit=turns.submit,
        report_context=report_context,
        summarize_now=summarize_now,
        preview_context=pins.preview,
        pin_message=pins.pin,
        unpin_message=pins.unpin,
        render_metrics=lambda: (b"# nothing yet\n", "text/plain; version=0.0.4; charset=utf-8"),
        check_ready=check_ready,
        count_message=count_message,
        clock=WallClock(),
    )
    return ApiStage(database, turns, pins, services, create_app(services, config))


@cache
def _shipped_agents() -> AgentRegistry:
    """Read the files once; a registry never changes."""
    return load_agents([], AgentDefaults(usage_threshold=0.8, summary_model=""))


async def open_session(client: httpx.AsyncClient) -> str:
    """Open a session and return its path."""
    response = await client.post("/v1/sessions", json={"agent": "assistant"})
    assert response.status_code == httpx.codes.CREATED, response.text
    return f"/v1/sessions/{response.json()['id']}"
