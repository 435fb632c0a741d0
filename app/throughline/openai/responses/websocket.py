"""OpenAI's Responses over a WebSocket: on one connection, one response after another.

See https://www.openresponses.org/specification , "WebSocket Transport".
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TypeAlias

import structlog
from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from throughline.domain.errors import NotAuthenticated, ThroughlineError
from throughline.execution.compute_threads import OwnerLimits
from throughline.execution.error_boundary import ErrorBoundary
from throughline.http.body import parse_json
from throughline.http.call import Call, admit_websocket, source_of
from throughline.http.problem_documents import json_bytes
from throughline.http.route_errors import FieldError, InvalidRequest, MalformedBody, TooManyConnections
from throughline.openai.errors import RESPONSE_WORDS, error_json, error_response, explained_json, status_of
from throughline.openai.output_items import JsonDict
from throughline.openai.read_request import Unsupported, validate_request
from throughline.openai.response_object import response_in_progress
from throughline.openai.responses.begin_response import RequestOrigin, begin_response
from throughline.openai.responses.request import UNSUPPORTED, CreateResponse
from throughline.openai.responses.stream import find_events, numbered_events

# Messages of a WebSocket's client that wait to be answered. They are read all the time. Otherwise uvicorn would stop
# reading while one waits. Pings of neither side would be answered, and nobody would notice that the client has left.

SocketMessage: TypeAlias = Mapping[str, object]
INBOX_BYTES = 65_536
"""Bytes of messages that may wait, besides the first one of them."""

MESSAGE_BYTES = 1_024
"""What a message counts besides its text. An empty one takes memory too, so no more than 65 may wait."""

TRY_AGAIN_LATER = 1013
DISCONNECTED: SocketMessage = {"type": "websocket.disconnect"}


class Inbox:
    """The messages that wait, oldest first. The last one says that the client has left."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._waiting: asyncio.Queue[SocketMessage] = asyncio.Queue()
        self._bytes = 0
        self._is_closed = False

    async def read(self) -> None:
        """Receive messages until the client leaves. A client of which too much waits is disconnected."""
        try:
            while (message := await self._websocket.receive())["type"] != DISCONNECTED["type"]:
                if self._bytes > INBOX_BYTES:
                    await self._websocket.close(TRY_AGAIN_LATER, "More than 64 kB of requests wait, or more than 64.")
                    return
                self._bytes += _size(message)
                self._waiting.put_nowait(message)
        finally:
            self._is_closed = True
            self._waiting.put_nowait(DISCONNECTED)

    async def take(self) -> SocketMessage:
        """Wait for the next message and return it."""
        message = await self._waiting.get()
        self._bytes -= _size(message)
        return message

    def check_open(self) -> None:
        """Raise WebSocketDisconnect if the client has left."""
        if self._is_closed:
            raise WebSocketDisconnect


def _size(message: SocketMessage) -> int:
    """Return the bytes that a message counts."""
    text, data = message.get("text"), message.get("bytes")
    sent = text.encode() if isinstance(text, str) else data if isinstance(data, bytes) else b""
    return MESSAGE_BYTES + len(sent)


@asynccontextmanager
async def open_inbox(websocket: WebSocket) -> AsyncGenerator[Inbox]:
    """Yield the inbox of an accepted connection, which is filled while the context is open."""
    inbox = Inbox(websocket)
    reading = asyncio.create_task(inbox.read(), name="read websocket")
    try:
        yield inbox
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


CONNECTION_SECONDS = 3600.0
"""Seconds for which a connection may last, by the specification."""

LIMIT_REACHED = "websocket_connection_limit_reached"
CREATE = "response.create"
RETRY_SECONDS = 5.0
NOT_OVER_WEBSOCKETS: Mapping[str, Unsupported] = {
    **UNSUPPORTED,
    "stream": Unsupported("a WebSocket always streams", (None, True)),
    "stream_options": Unsupported("a WebSocket always streams"),
    "background": Unsupported("a WebSocket carries one response at a time", (None, False)),
}
router = APIRouter()
log = structlog.get_logger(__name__)


@router.websocket("/v1/responses")
async def answer_websocket(websocket: WebSocket) -> None:
    """Answer each `response.create` of the connection with the events of its response."""
    limits: OwnerLimits = websocket.app.state.websockets
    try:
        call = await admit_websocket(websocket)
        if limits.take(call.owner_id) is not None:
            raise TooManyConnections(
                "You, or all users, have as many WebSockets open as MAX_WEBSOCKETS allows. Close one, or use HTTP.",
                delay_seconds=RETRY_SECONDS,
            )
    except ThroughlineError as error:
        await websocket.send_denial_response(error_response(error, RESPONSE_WORDS))
        return
    try:
        with suppress(WebSocketDisconnect):
            await websocket.accept()
            async with open_inbox(websocket) as inbox:
                await _Connection(websocket, call, inbox).serve()
    finally:
        limits.give_back(call.owner_id)


class _Connection:
    """An open connection. `_continuable` are ids of responses that were not stored and can be continued on it only."""

    def __init__(self, websocket: WebSocket, call: Call, inbox: Inbox) -> None:
        self._websocket = websocket
        self._call = call
        self._inbox = inbox
        self._continuable: set[str] = set()

    async def serve(self) -> None:
        """Answer the client's messages until it leaves, its key is revoked, or its time is over."""
        limit = asyncio.timeout(CONNECTION_SECONDS)
        try:
            async with limit:
                while await self._answer(await self._inbox.take()):
                    pass
        except TimeoutError:
            if not limit.expired():
                raise
            detail = "A WebSocket may last for 60 minutes. Open a new one."
            await self._send_error(HTTPStatus.BAD_REQUEST, error_json(LIMIT_REACHED, detail))
            await self._websocket.close()

    async def _answer(self, message: Mapping[str, object]) -> bool:
        """Answer one message. Return whether the connection goes on."""
        if message["type"] == "websocket.disconnect":
            return False
        boundary = ErrorBoundary(log.error, task="websocket", lets_through=(WebSocketDisconnect,))
        with boundary:
            try:
                await self._call.recheck()
                await self._respond(_read(message))
            except NotAuthenticated as error:
                await self._refuse(error)
                await self._websocket.close()
                return False
            except ThroughlineError as error:
                await self._refuse(error)
        if boundary.error is not None:
            await self._refuse(ThroughlineError("An unexpected error occurred. Nothing stored is lost; try again."))
        return True

    async def _respond(self, body: CreateResponse) -> None:
        """Send the events of a new response. One that fails makes the response that it continues unknown here."""
        continued = body.previous_response_id or ""
        was_continuable = continued in self._continuable
        self._continuable.discard(continued)
        origin = RequestOrigin(
            source_of(self._websocket, self._call), continuable=frozenset({continued} if was_continuable else ())
        )
        begun = await begin_response(self._call, body, origin)
        response = begun.repeated or await response_in_progress(self._call, begun.followed, begun.part)
        stream = await find_events(self._call, response, begun.followed)
        last: JsonDict = {}
        async with aclosing(numbered_events(self._call, stream)) as batches:
            async for events in batches:
                self._inbox.check_open()
                for event in events:
                    await self._websocket.send_text(json_bytes(event).decode())
                    last = event
        if last.get("type") != "response.failed":
            self._continuable |= ({continued} if was_continuable else set()) | (
                set() if body.is_stored else {str(response.ref)}
            )

    async def _refuse(self, error: ThroughlineError) -> None:
        await self._send_error(status_of(error.code), explained_json(error, RESPONSE_WORDS))

    async def _send_error(self, status: int, error: JsonDict) -> None:
        await self._websocket.send_text(json_bytes({"type": "error", "status": status, "error": error}).decode())


def _read(message: Mapping[str, object]) -> CreateResponse:
    """Return the request in a message. Raises MalformedBody and InvalidRequest."""
    text = message.get("text")
    if not isinstance(text, str):
        raise MalformedBody("Send each request as a text message with a JSON object.")
    given = parse_json(text.encode())
    if not isinstance(given, dict) or given.get("type") != CREATE:
        raise InvalidRequest((FieldError("type", f"must be {CREATE!r}, the only request of this connection"),))
    return validate_request(
        {name: value for name, value in given.items() if name != "type"}, CreateResponse, NOT_OVER_WEBSOCKETS
    )
