"""The double over HTTP and over WebSockets, as Socket Mode uses them."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from fakes.provider_double.json_types import Json
from fakes.slack_double.methods import Failure, Refused, Rules, perform
from fakes.slack_double.payloads import APP_TOKEN, BOT_TOKEN, Workspace


@dataclass(slots=True)
class Sockets:
    """Keeps the connections; `deliver` sends an envelope over the newest and waits for its acknowledgement.

    A ticket opens one connection; `turned_away` connections more are refused, with tickets that were good.
    """

    turned_away: int = 0
    connections: list[web.WebSocketResponse] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _tickets: set[str] = field(default_factory=set)
    _waiting: dict[str, "asyncio.Future[Json]"] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ticket(self) -> str:
        """Return what opens one connection."""
        ticket = f"ticket-{next(self._numbers)}"
        self._tickets.add(ticket)
        return ticket

    async def attach(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection until it closes; a ticket that was used is answered as one that is too old."""
        ticket = request.query.get("ticket", "")
        is_good = ticket in self._tickets and self.turned_away == 0
        self._tickets.discard(ticket)
        self.turned_away = max(0, self.turned_away - 1)
        if not is_good:
            return web.Response(status=web.HTTPRequestTimeout.status_code)
        return await self._serve(request)

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0DOUBLE1"}})
        self.connections.append(socket)
        self.connected.set()
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self._acknowledge(json.loads(message.data))
        self.connections.remove(socket)
        return socket

    async def send_away(self, reason: str) -> None:
        """Ask the newest connection to be opened again, as Slack does from time to time."""
        await self.connections[-1].send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "double"}})

    async def deliver(self, kind: str, payload: Json, *, attempt: int = 0, timeout_seconds: float = 3.0) -> Json | None:
        """Return the acknowledgement, None where none came in time."""
        envelope_id = f"envelope-{next(self._numbers)}"
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[envelope_id] = answer
        envelope: Json = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        envelope["accepts_response_payload"] = True
        if attempt:
            envelope |= {"retry_attempt": attempt, "retry_reason": "timeout"}
        await self.connections[-1].send_json(envelope)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(envelope_id, None)

    async def close(self) -> None:
        """Close every connection."""
        for socket in list(self.connections):
            await socket.close()

    def _acknowledge(self, message: Json) -> None:
        waiting = self._waiting.get(str(message.get("envelope_id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


@dataclass(slots=True)
class SlackDouble:
    """A workspace with a Web API. `url` is the base URL for clients, with its slash."""

    workspace: Workspace = field(default_factory=Workspace)
    rules: Rules = field(init=False)
    sockets: Sockets = field(default_factory=Sockets)
    url: str = ""

    def __post_init__(self) -> None:
        self.rules = Rules(self.workspace.now)

    def application(self) -> web.Application:
        """Return the application that serves the double."""
        application = web.Application(client_max_size=10_000_000)
        application.router.add_route("*", "/api/{method}", self._call)
        application.router.add_post("/response/{name}", self._respond)
        application.router.add_get("/link", self.sockets.attach)
        return application

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method, args = request.match_info["method"], await _arguments(request)
        failure = Failure(status=503) if self.workspace.is_away else self.rules.take(method)
        if failure is not None and failure.delay_seconds:
            await asyncio.sleep(failure.delay_seconds)
        elif failure is not None:
            return self._fail(request, method, args, failure)
        return self._answer(method, args, _token(request, args))

    def _answer(self, method: str, args: Json, token: str) -> web.Response:
        try:
            reply = self._perform(method, args, token)
        except Refused as refused:
            self.workspace.record(method, args, refused.error)
            reply = {"ok": False, "error": refused.error, **refused.more}
        else:
            self.workspace.record(method, args, "ok")
            reply = {"ok": True, **reply}
        return web.json_response(reply, headers={"X-OAuth-Scopes": ",".join(self.workspace.scopes)})

    def _perform(self, method: str, args: Json, token: str) -> Json:
        if token in self.workspace.revoked:
            raise Refused(self.workspace.revoked[token])
        if method == "apps.connections.open":
            return self._open_socket(token)
        if token != BOT_TOKEN:
            raise Refused("invalid_auth" if token else "not_authed")
        return perform(self.workspace, method, args)

    def _open_socket(self, token: str) -> Json:
        if token != APP_TOKEN:
            raise Refused("invalid_auth" if token else "not_authed")
        link = self.url.replace("http://", "ws://").replace("/api/", "/link")
        return {"url": f"{link}?ticket={self.sockets.ticket()}"}

    def _fail(self, request: web.Request, method: str, args: Json, failure: Failure) -> web.Response:
        if failure.acts:
            self._perform(method, args, _token(request, args))
        if failure.drops:
            self.workspace.record(method, args, "answer lost" if failure.acts else "cut")
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        error = failure.error or ("ratelimited" if failure.status == web.HTTPTooManyRequests.status_code else "")
        self.workspace.record(method, args, error or str(failure.status))
        headers = {"Retry-After": str(failure.retry_after)} if failure.retry_after else {}
        if not error:
            words, kind = "upstream error", failure.content_type
            return web.Response(status=failure.status, text=words, content_type=kind, headers=headers)
        return web.json_response({"ok": False, "error": error}, status=failure.status, headers=headers)

    async def _respond(self, request: web.Request) -> web.Response:
        """Take what is sent to a `response_url`."""
        self.workspace.responses.append((request.match_info["name"], await request.json()))
        return web.Response(text="ok")


@asynccontextmanager
async def serve_slack(double: SlackDouble | None = None, *, port: int = 0) -> AsyncIterator[SlackDouble]:
    """Serve the double inside the block."""
    double = double or SlackDouble()
    runner = web.AppRunner(double.application(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    double.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
    try:
        yield double
    finally:
        await double.sockets.close()
        await runner.cleanup()


async def _arguments(request: web.Request) -> Json:
    """Return the arguments, however they were sent: as JSON, as a form, or in the query."""
    if request.content_type == "application/json" and request.can_read_body:
        return dict(await request.json())
    form = {name: _unpacked(str(value)) for name, value in (await request.post()).items()}
    return {**dict(request.query), **form}


def _unpacked(value: str) -> object:
    return json.loads(value) if value.startswith(("{", "[")) else value


def _token(request: web.Request, args: Json) -> str:
    header = request.headers.get("Authorization", "")
    return header.removeprefix("Bearer ") or str(args.get("token", ""))
