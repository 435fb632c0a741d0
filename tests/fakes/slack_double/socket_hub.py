"""Socket Mode's side of the double: WebSockets on which envelopes go out and acknowledgements come back.

Follows https://docs.slack.dev/apis/events-api/using-socket-mode/.
"""

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from fakes.provider_double.json_types import Json


@dataclass(slots=True)
class SocketHub:
    """Keeps the connections; `deliver` sends an envelope over the newest and waits for its acknowledgement."""

    connections: list[web.WebSocketResponse] = field(default_factory=list)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: dict[str, "asyncio.Future[Json]"] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def attach(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection until it closes."""
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
