"""A small service that speaks the wire, for tests of the command line: a real socket, scripted answers, cuts."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fakes.fake_memories import FakeMemories

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC).isoformat()
RUN_ID = "01900000-0000-7000-8000-0000000000aa"


@dataclass(frozen=True)
class Event:
    """One event of a scripted answer."""

    type: str
    data: dict[str, object]


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
    return Event("run.started", {"run": {"id": RUN_ID, "status": "running"}})


def delta(text: str) -> Event:
    return Event("message.delta", {"text": text})


def ending(text: str) -> list[Step]:
    message = {"position": 2, "role": "assistant", "content": text}
    run = {"id": RUN_ID, "status": "succeeded"}
    return [
        Event("message.completed", {"message": message}),
        Event("run.completed", {"run": run, "message": message, "context": None}),
    ]


def message_id(position: int) -> str:
    return str(UUID(int=0xAA0000 + position))


def sse_bytes(number: int, event: Event) -> bytes:
    return f"id: {number}\nevent: {event.type}\ndata: {json.dumps(event.data)}\n\n".encode()


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
    sessions: dict[str, dict[str, object]] = field(default_factory=dict)
    messages: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    context: dict[str, object] = field(default_factory=dict)
    preview: dict[str, object] = field(default_factory=dict)
    summaries: list[dict[str, object]] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    previewed: list[str | None] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    names_run: bool = True
    required_key: str = ""
    hits: list[dict[str, object]] = field(default_factory=list)
    searched: list[dict[str, str]] = field(default_factory=list)
    search_refusal: str = ""
    imported: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)
    memories: FakeMemories = field(default_factory=FakeMemories)
    _script: list[Step] = field(default_factory=list)

    def add_session(self, number: int, *, title: str = "", messages: int = 0, summarized: int = 0) -> str:
        session_id = str(UUID(int=number))
        self.sessions[session_id] = {
            "id": session_id,
            "agent": "assistant",
            "title": title,
            "source": "cli",
            "message_count": messages,
            "summarized_count": summarized,
            "created_at": NOW,
            "updated_at": NOW,
            "metadata": {},
            "archived": False,
        }
        self.messages[session_id] = [
            {
                "id": message_id(n),
                "position": n,
                "pinned": False,
                "role": "user" if n % 2 else "assistant",
                "content": f"text {n}",
                "created_at": NOW,
            }
            for n in range(1, messages + 1)
        ]
        return session_id

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
                Route("/v1/sessions/{id}/summaries/{summary}/restore", self._restore, methods=["POST"]),
                Route("/v1/sessions/{id}/summarize", self._summarize, methods=["POST"]),
                Route("/v1/runs/{id}/events", self._events),
                Route("/v1/runs/{id}/cancel", self._cancel, methods=["POST"]),
            ]
        )

    async def _agents(self, request: Request) -> Response:
        if self.required_key and request.headers.get("authorization") != f"Bearer {self.required_key}":
            return _problem(401, "A valid key is needed.")
        names = ("assistant", "researcher")
        return JSONResponse({
            "data": [{"name": n, "description": f"[b]{n}[/b]", "model": "", "tools": []} for n in names]
        })

    async def _list_sessions(self, request: Request) -> Response:
        q, limit = request.query_params.get("q", ""), int(request.query_params["limit"])
        first = int(request.query_params.get("cursor", "0"))
        found = [session for session in self.sessions.values() if q in str(session["title"])]
        behind = str(first + limit) if first + limit < len(found) else None
        return JSONResponse({"data": found[first : first + limit], "next_cursor": behind})

    async def _create_session(self, request: Request) -> Response:
        session_id = self.add_session(1000 + len(self.sessions), title=(await request.json())["title"])
        return JSONResponse(self.sessions[session_id], 201)

    async def _session(self, request: Request) -> Response:
        session = self.sessions.get(request.path_params["id"])
        if session is None:
            return _problem(404, "There is no such session.")
        if request.method == "DELETE":
            del self.sessions[request.path_params["id"]]
            return Response(status_code=204)
        return JSONResponse(session)

    async def _import(self, request: Request) -> Response:
        body = await request.body()
        self.imported.append((request.headers["content-type"], dict(request.query_params), body))
        return JSONResponse(self.sessions[self.add_session(500, title="Imported", messages=3)], 201)

    async def _redact(self, request: Request) -> Response:
        message = request.path_params["message"]
        self.redacted.append(message)
        found = self.messages.get(request.path_params["id"], [])
        item = next((item for item in found if item["id"] == message), None)
        return _problem(404, "There is no such message.") if item is None else JSONResponse(item)

    async def _history(self, request: Request) -> Response:
        query, found = request.query_params, self.messages[request.path_params["id"]]
        limit = int(query["limit"])
        if query.get("order") == "desc":
            rest = [m for m in reversed(found) if int(str(m["position"])) < int(query.get("before", 10**9))]
        else:
            after, before = int(query.get("after", 0)), int(query.get("before", 10**9))
            rest = [m for m in found if after < int(str(m["position"])) < before]
        page = rest[:limit]
        return JSONResponse({"data": page, "next_cursor": str(page[-1]["position"]) if len(rest) > limit else None})

    async def _search(self, request: Request) -> Response:
        self.searched.append({"path": request.url.path, **request.query_params})
        if self.search_refusal:
            return _problem(422, self.search_refusal)
        return JSONResponse({"data": self.hits, "is_complete": True})

    async def _context(self, _request: Request) -> Response:
        return JSONResponse({"agent": "assistant", "model": "offline", "context_window": 8192, **self.context})

    async def _preview(self, request: Request) -> Response:
        self.previewed.append((await request.json()).get("content"))
        return JSONResponse({"action": "none", "tokens": 0, "window": 8192, **self.preview})

    async def _summaries(self, request: Request) -> Response:
        limit, first = int(request.query_params["limit"]), int(request.query_params.get("cursor", "0"))
        behind = str(first + limit) if first + limit < len(self.summaries) else None
        return JSONResponse({"data": self.summaries[first : first + limit], "next_cursor": behind})

    async def _restore(self, request: Request) -> Response:
        chosen = next(item for item in self.summaries if item["id"] == request.path_params["summary"])
        if chosen["version"] is None:
            return _problem(422, "A prepared summary was never in use.")
        self.restored.append(str(chosen["id"]))
        session = self.sessions[request.path_params["id"]]
        session["summarized_count"] = chosen["through_position"]
        return JSONResponse(session)

    async def _pin(self, request: Request) -> Response:
        """Pins a message; one of a tool is pinned with the message before it, its call."""
        found = self.messages[request.path_params["id"]]
        at = next(n for n, item in enumerate(found) if item["id"] == request.path_params["message"])
        group = found[at - 1 : at + 1] if found[at]["role"] == "tool" else [found[at]]
        for message in group:
            message["pinned"] = request.method == "PUT"
        return JSONResponse({"data": group}) if request.method == "PUT" else Response(status_code=204)

    async def _summarize(self, request: Request) -> Response:
        session = self.sessions[request.path_params["id"]]
        self.instructions.append((await request.json()).get("instructions", ""))
        session["summarized_count"] = 4
        body = {"outcome": "adopted", "detail": "", "tokens_before": 900, "tokens_after": 400, "session": session}
        return JSONResponse(body)

    async def _message(self, request: Request) -> Response:
        if request.path_params["id"] not in self.sessions:
            return _problem(404, "There is no such session.")
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
        return JSONResponse({"run": {"id": RUN_ID, "status": "running"}}, 202)

    def _stream(self, *, after: int) -> Response:
        headers = {"content-location": f"/v1/runs/{RUN_ID}"} if self.names_run else {}
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


def _problem(status: int, detail: str) -> Response:
    body = {"type": "/problems/x", "title": "T", "status": status, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")


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
