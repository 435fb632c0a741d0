"""The double over HTTP: its routes, those to script and question it, and a server in a thread."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fakes.provider_double.chat_request import NAMES
from fakes.provider_double.double import ProviderDouble, ScriptedDouble, Verdict
from fakes.provider_double.replies import Ending, Reply, json_reply
from fakes.provider_double.script import ANY_TURN, step_from_json


def control_routes(double: ScriptedDouble) -> list[Route]:
    """Return the `/control/*` routes of `double`."""

    async def script(request: Request) -> Response:
        """`{steps, line?, then_default?, replace?}`: append steps to a line, or put them in place of what is left."""
        body = json.loads(await request.body())
        line = body.get("line", ANY_TURN)
        if body.get("replace"):
            double.drop_line(line)
        steps = [step_from_json(step) for step in body["steps"]]
        double.script(*steps, line=line, then_default=body.get("then_default", False))
        return JSONResponse({"complaints": double.complaints()})

    async def requests(request: Request) -> Response:
        """`?since=N`: the requests after number N, in order."""
        since = int(request.query_params.get("since", 0))
        return JSONResponse([record.as_json() for record in double.requests if record.number > since])

    async def stats(request: Request) -> Response:
        """How many requests there were, by verdict, and what is wrong with the script."""
        del request
        return JSONResponse({"verdicts": _by_verdict(double), "complaints": double.complaints()})

    async def count(request: Request) -> Response:
        """`{model, tools, prompts: […]}`: the model's own count of each prompt."""
        return JSONResponse(double.count(json.loads(await request.body())))

    async def reset(request: Request) -> Response:
        """Forget requests and script."""
        del request
        double.reset()
        return JSONResponse({})

    return [
        Route("/control/script", script, methods=["POST"]),
        Route("/control/requests", requests),
        Route("/control/stats", stats),
        Route("/control/count", count, methods=["POST"]),
        Route("/control/reset", reset, methods=["POST"]),
    ]


def _by_verdict(double: ScriptedDouble) -> Mapping[str, int]:
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for record in double.requests:
        counts[record.verdict.value] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Sending:
    """An ASGI response: waits, sends a reply piece by piece, and ends it as the script wants.

    `when_whole` is called as the last piece goes out to a client that is still there, `at_end` in any case.
    """

    reply: Reply
    at_end: Callable[[], None] = lambda: None
    when_whole: Callable[[], None] = lambda: None
    wait_seconds: float = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        try:
            await self._send(Request(scope, receive), send)
        finally:
            self.at_end()

    async def _send(self, request: Request, send: Send) -> None:
        reply = self.reply
        await asyncio.sleep(self.wait_seconds)
        if reply.pieces:
            await send({"type": "http.response.start", "status": reply.status, "headers": _headers(reply)})
        *pieces, last = (reply.pieces if reply.delay_seconds else ()) or (b"".join(reply.pieces),)
        for piece in pieces:
            await self._send_piece(piece, send)
        if reply.ending is Ending.COMPLETE and not await request.is_disconnected():
            self.when_whole()
        await self._send_piece(last, send)
        if reply.ending is Ending.HANG:
            await _until_the_client_leaves(request.receive)
        if reply.ending is Ending.COMPLETE:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        # RESET: the server drops the connection of an application that returns in the middle of its response

    async def _send_piece(self, piece: bytes, send: Send) -> None:
        if self.reply.delay_seconds:
            await asyncio.sleep(self.reply.delay_seconds)
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})


def make_application(double: ProviderDouble) -> Starlette:
    """Return the application that serves `double`."""

    async def chat_completions(request: Request) -> Sending:
        exchange = double.receive(await request.body(), request.headers.get("authorization", ""))
        return Sending(
            exchange.reply,
            at_end=lambda: double.leave(exchange.conversation),
            when_whole=lambda: double.sent_whole(exchange.number),
            wait_seconds=exchange.wait_seconds,
        )

    async def embeddings(request: Request) -> Sending:
        reply = double.receive_texts(await request.body(), request.headers.get("authorization", ""))
        return Sending(reply)

    async def models(request: Request) -> Sending:
        del request
        listed = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "double"} for name in NAMES]
        return Sending(json_reply({"object": "list", "data": listed}))

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/v1/models", models),
            *control_routes(double),
        ]
    )


def _headers(reply: Reply) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", reply.content_type.encode())]
    return [*headers, *((name.encode(), value.encode()) for name, value in reply.headers)]


async def _until_the_client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


BACKLOG = 512


@contextmanager
def serve_double(double: ProviderDouble) -> Iterator[ProviderDouble]:
    """Serve `double` inside the block; `double.url` says where."""
    with bind(0) as listener:
        double.url = f"{address_of(listener)}/v1"
        with serve_application(make_application(double), listener):
            yield double


@contextmanager
def serve_application(application: Starlette, listener: socket.socket) -> Iterator[None]:
    """Serve `application` on `listener` inside the block, in a thread of its own."""
    server = server_of(application)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="provider-double")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def bind(port: int) -> socket.socket:
    """Return a listening loopback socket; connections wait in it until the server runs."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of the server behind it."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def server_of(application: Starlette) -> uvicorn.Server:
    """Return a server, not running. It says nothing: dropped connections are what it is for."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
