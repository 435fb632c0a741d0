"""The double over HTTP and WebSocket on a free loopback port, in the loop of whoever opens it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from fakes.provider_double.json_types import Json
from fakes.slack_double.methods import perform
from fakes.slack_double.rules import Failure, Refused, Rules
from fakes.slack_double.socket_hub import SocketHub
from fakes.slack_double.workspace import APP_TOKEN, BOT_TOKEN, Workspace


@dataclass(slots=True)
class SlackDouble:
    """A workspace with a Web API. `url` is the base URL for clients, with its slash."""

    workspace: Workspace = field(default_factory=Workspace)
    rules: Rules = field(init=False)
    sockets: SocketHub = field(default_factory=SocketHub)
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
