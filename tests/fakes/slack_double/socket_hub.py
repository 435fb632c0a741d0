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
        """Ask the newest connection to be opened anew, as Slack does from time to time."""
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
