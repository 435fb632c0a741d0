"""Messages of a WebSocket's client that wait to be answered.

They are read all the time. Otherwise uvicorn would stop reading while one waits. Pings of neither side would be
answered, and nobody would notice that the client has left.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from fastapi import WebSocket, WebSocketDisconnect

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
