"""The double over HTTP: chat, embeddings and models below `/v1`, `/control/*` for whoever runs it as a process."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fakes.provider_double.control import control_routes
from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.models import NAMES
from fakes.provider_double.wire import Ending, Reply, json_reply


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
