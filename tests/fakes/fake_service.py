"""A small service that speaks the wire, for tests of the command line: a real socket, scripted answers, cuts."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.domain.events import EventType
from app.wire.context import ContextOut, PreviewOut
from app.wire.events import MessageCompleted, MessageDelta, RunCompleted, RunStarted
from app.wire.messages import HitOut, MessageOut, MessagePage, PinnedGroup, SearchOut
from app.wire.service import AgentList, AgentOut
from app.wire.sessions import SessionOut, SessionPage, SummarizeOut, SummaryList, SummaryVersionOut
from app.wire.shape import Shape
from fakes.fake_memories import FakeMemories
from fakes.wire_shapes import (
    RUN_ID,
    answered,
    changed,
    context_out,
    message_out,
    preview_out,
    refused,
    run_out,
    session_out,
)


@dataclass(frozen=True)
class Event:
    """One event of a scripted answer."""

    type: str
    data: Shape


@dataclass(frozen=True)
class Cut:
    """The connection breaks here, once."""


@dataclass(frozen=True)
class WaitForCancel:
    """Nothing comes until the run is cancelled."""


Step = Event | Cut | WaitForCancel


def answer_of(*pieces: str) -> list[Step]:
    """Return the script of an answer that comes in `pieces`."""
    return [started(), *(delta(piece) for piece in pieces), *ending("".join(pieces))]


def started() -> Event:
    return Event(EventType.RUN_STARTED, RunStarted(run=run_out()))


def delta(text: str) -> Event:
    return Event(EventType.MESSAGE_DELTA, MessageDelta(text=text))


def ending(text: str) -> list[Step]:
    message = message_out(2, content=text)
    run = run_out(status="succeeded", message_id=message.id)
    completed = RunCompleted(run=run, message=message, context=context_out())
    return [
        Event(EventType.MESSAGE_COMPLETED, MessageCompleted(message=message)),
        Event(EventType.RUN_COMPLETED, completed),
    ]


def sse_bytes(number: int, event: Event) -> bytes:
    return f"id: {number}\nevent: {event.type}\ndata: {event.data.model_dump_json()}\n\n".encode()


@dataclass
class Received:
    """What a client sent with one message or reconnect."""

    path: str
    key: str = ""
    last_event_id: str = ""
    content: str = ""


class CutConnection(Response):
    """Sends `body` as the start of a stream and then breaks the connection."""

    def __init__(self, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(None, 200, headers, "text/event-stream")
        self._start = body

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._start, "more_body": True})
        # Returning without the last piece makes the server close the connection in the middle of the body.


@dataclass
class FakeService:
    """Keeps sessions in memory and answers each message with the next script."""

    scripts: list[list[Step]] = field(default_factory=list)
    sessions: dict[str, SessionOut] = field(default_factory=dict)
    messages: dict[str, list[MessageOut]] = field(default_factory=dict)
    context: ContextOut = field(default_factory=context_out)
    preview: PreviewOut = field(default_factory=preview_out)
    summaries: list[SummaryVersionOut] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    previewed: list[str | None] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    names_run: bool = True
    required_key: str = ""
    hits: list[HitOut] = field(default_factory=list)
    searched: list[dict[str, str]] = field(default_factory=list)
    search_refusal: str = ""
    imported: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)
    memories: FakeMemories = field(default_factory=FakeMemories)
    _script: list[Step] = field(default_factory=list)

    def add_session(self, number: int, *, title: str = "", messages: int = 0, summarized: int = 0) -> str:
        session_id = str(UUID(int=number))
        self.sessions[session_id] = session_out(
            id=session_id, title=title, message_count=messages, summarized_count=summarized
        )
        self.messages[session_id] = [message_out(position) for position in range(1, messages + 1)]
        return session_id

    def change_message(self, session_id: str, position: int, **changes: object) -> None:
        messages = self.messages[session_id]
        messages[position - 1] = changed(messages[position - 1], **changes)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/agents", self._agents),
                Route("/v1/sessions", self._list_sessions, methods=["GET"]),
                Route("/v1/sessions", self._create_session, methods=["POST"]),
                Route("/v1/sessions/import", self._import, methods=["POST"]),
                Route("/v1/sessions/{id}", self._session, methods=["GET", "DELETE"]),
                Route("/v1/sessions/{id}/messages", self._history, methods=["GET"]),
                Route("/v1/sessions/{id}/messages", self._message, methods=["POST"]),
                Route("/v1/sessions/{id}/messages/{message}/pin", self._pin, methods=["PUT", "DELETE"]),
                Route("/v1/sessions/{id}/messages/{message}/redact", self._redact, methods=["POST"]),
                *self.memories.routes(),
                Route("/v1/search", self._search),
                Route("/v1/sessions/{id}/search", self._search),
                Route("/v1/sessions/{id}/context", self._context),
                Route("/v1/sessions/{id}/context/preview", self._preview, methods=["POST"]),
                Route("/v1/sessions/{id}/summaries", self._summaries),
                Route("/v1/sessions/{id}/summaries/{summary}", self._summary),
                Route("/v1/sessions/{id}/summaries/{summary}/restore", self._restore, methods=["POST"]),
                Route("/v1/sessions/{id}/summarize", self._summarize, methods=["POST"]),
                Route("/v1/runs/{run}/events", self._events),
                Route("/v1/runs/{run}/cancel", self._cancel, methods=["POST"]),
            ]
        )

    async def _agents(self, request: Request) -> Response:
        if self.required_key and request.headers.get("authorization") != f"Bearer {self.required_key}":
            return refused(401, "A valid key is needed.")
        return answered(AgentList(data=[_agent("assistant"), _agent("researcher")]))

    async def _list_sessions(self, request: Request) -> Response:
        q, limit = request.query_params.get("q", ""), int(request.query_params["limit"])
        first = int(request.query_params.get("cursor", "0"))
        found = [session for session in self.sessions.values() if q in session.title]
        behind = str(first + limit) if first + limit < len(found) else None
        return answered(SessionPage(data=found[first : first + limit], next_cursor=behind))

    async def _create_session(self, request: Request) -> Response:
        session_id = self.add_session(1000 + len(self.sessions), title=(await request.json())["title"])
        return answered(self.sessions[session_id], 201)

    async def _session(self, request: Request) -> Response:
        session = self.sessions.get(request.path_params["id"])
        if session is None:
            return refused(404, "There is no such session.")
        if request.method == "DELETE":
            del self.sessions[session.id]
            return Response(status_code=204)
        return answered(session)

    async def _import(self, request: Request) -> Response:
        body = await request.body()
        self.imported.append((request.headers["content-type"], dict(request.query_params), body))
        return answered(self.sessions[self.add_session(500, title="Imported", messages=3)], 201)

    async def _redact(self, request: Request) -> Response:
        wanted = request.path_params["message"]
        self.redacted.append(wanted)
        found = self.messages.get(request.path_params["id"], [])
        message = next((message for message in found if message.id == wanted), None)
        return refused(404, "There is no such message.") if message is None else answered(message)

    async def _history(self, request: Request) -> Response:
        query, found = request.query_params, self.messages[request.path_params["id"]]
        limit, before = int(query["limit"]), int(query.get("before", 10**9))
        if query.get("order") == "desc":
            rest = [message for message in reversed(found) if message.position < before]
        else:
            rest = [message for message in found if int(query.get("after", 0)) < message.position < before]
        page = rest[:limit]
        behind = str(page[-1].position) if len(rest) > limit else None
        return answered(MessagePage(data=page, next_cursor=behind))

    async def _search(self, request: Request) -> Response:
        self.searched.append({"path": request.url.path, **request.query_params})
        if self.search_refusal:
            return refused(422, self.search_refusal)
        return answered(SearchOut(data=self.hits, is_complete=True))

    async def _context(self, _request: Request) -> Response:
        return answered(self.context)

    async def _preview(self, request: Request) -> Response:
        self.previewed.append((await request.json()).get("content"))
        return answered(self.preview)

    async def _summaries(self, request: Request) -> Response:
        limit, first = int(request.query_params["limit"]), int(request.query_params.get("cursor", "0"))
        behind = str(first + limit) if first + limit < len(self.summaries) else None
        return answered(SummaryList(data=self.summaries[first : first + limit], next_cursor=behind))

    async def _summary(self, request: Request) -> Response:
        wanted = request.path_params["summary"]
        found = [version for version in self.summaries if wanted in {version.id, str(version.version)}]
        return answered(found[0]) if found else refused(404, f"There is no version {wanted} of the summary.")

    async def _restore(self, request: Request) -> Response:
        chosen = next(version for version in self.summaries if version.id == request.path_params["summary"])
        if chosen.version is None:
            return refused(422, "A prepared summary was never in use.")
        self.restored.append(chosen.id)
        return answered(self._summarized(request, chosen.through_position))

    async def _pin(self, request: Request) -> Response:
        """Pins a message; one of a tool is pinned with the message before it, its call."""
        session_id, is_pinning = request.path_params["id"], request.method == "PUT"
        found = self.messages[session_id]
        at = next(n for n, message in enumerate(found) if message.id == request.path_params["message"])
        first = at - 1 if found[at].role == "tool" else at
        for message in found[first : at + 1]:
            self.change_message(session_id, message.position, pinned=is_pinning)
        return answered(PinnedGroup(data=found[first : at + 1])) if is_pinning else Response(status_code=204)

    async def _summarize(self, request: Request) -> Response:
        self.instructions.append((await request.json()).get("instructions", ""))
        session = self._summarized(request, 4)
        done = SummarizeOut(outcome="adopted", detail="", tokens_before=900, tokens_after=400, session=session)
        return answered(done)

    def _summarized(self, request: Request, through: int) -> SessionOut:
        session_id = request.path_params["id"]
        self.sessions[session_id] = changed(self.sessions[session_id], summarized_count=through)
        return self.sessions[session_id]

    async def _message(self, request: Request) -> Response:
        if request.path_params["id"] not in self.sessions:
            return refused(404, "There is no such session.")
        content = (await request.json())["content"]
        key = request.headers["idempotency-key"]
        if key not in {item.key for item in self.received}:
            self._script = self.scripts.pop(0)
        self.received.append(Received("message", key=key, content=content))
        return self._stream(after=0)

    async def _events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        self.received.append(Received("events", last_event_id=last))
        return self._stream(after=int(last or 0))

    async def _cancel(self, _request: Request) -> Response:
        self.cancelled.set()
        return answered(run_out(cancel_requested=True))

    def _stream(self, *, after: int) -> Response:
        headers = {"content-location": f"/v1/runs/{RUN_ID}/events"} if self.names_run else {}
        events = [step for step in self._script if not isinstance(step, Cut)]
        cut_at = next((n for n, step in enumerate(self._script) if isinstance(step, Cut)), None)
        if cut_at is None:
            return StreamingResponse(self._write(events, after), 200, headers, "text/event-stream")
        del self._script[cut_at]
        sent = [
            sse_bytes(number, step)
            for number, step in enumerate(events[:cut_at], start=1)
            if isinstance(step, Event) and number > after
        ]
        return CutConnection(b": heartbeat\n\n" + b"".join(sent), headers)

    async def _write(self, steps: list[Event | WaitForCancel], after: int) -> AsyncIterator[bytes]:
        for number, step in enumerate(steps, start=1):
            if isinstance(step, WaitForCancel):
                await self.cancelled.wait()
            elif number > after:
                yield sse_bytes(number, step)


def _agent(name: str) -> AgentOut:
    return AgentOut(
        name=name, description=f"[b]{name}[/b]", model="", tools=["calculator"], max_tool_rounds=10, context={}
    )


class _QuietServer(uvicorn.Server):
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
        if self.server_state.connections:
            await super().shutdown(sockets)
        for listener in sockets or []:
            listener.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(service: FakeService, socket_path: Path) -> AsyncIterator[Path]:
    """Serve `service` on a unix socket in the running loop."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    async with serving_on(service, listener):
        yield socket_path


@contextlib.asynccontextmanager
async def serving_on(service: FakeService, listener: socket.socket) -> AsyncIterator[None]:
    """Serve `service` on a bound socket in the running loop."""
    listener.listen()
    server = _QuietServer(uvicorn.Config(service.app(), log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        server.stopped.set()
        await task
