"""A server that stops answers what its clients have sent or are about to send, and says with it that it closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send

from fakes.raw_http_server import RawAnswer, RawClient, connected
from fakes.waiting import HANG_SECONDS, until
from throughline.http.accept import ConnectionCounts
from throughline.http.protocol import WEBSOCKET_PATH, ConnectionLimits
from throughline.http.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bound_url

PATIENT = ConnectionLimits(linger_seconds=3_600)
QUICK = ConnectionLimits(linger_seconds=0.05)
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
REQUEST = HEAD + b"\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"


@dataclass
class Stoppable:
    """A server of an application that answers each request with `ok`: its first byte, and the second after `may_end`.

    `has_begun` is set once a first byte is sent; unless `is_eager`, none is sent before `may_end` either.
    """

    limits: ConnectionLimits
    counts: ConnectionCounts | None = None
    is_eager: bool = True
    is_closing: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    server: HttpServer = field(init=False)
    url: str = field(init=False)

    def __post_init__(self) -> None:
        async def before_closing() -> None:
            self.is_closing.set()

        listener = bind_tcp(TcpAddress("127.0.0.1", 0))
        self.url = bound_url(listener)
        self.server = HttpServer(
            self.answer, listener, Shutdown(before_closing, HANG_SECONDS), self.limits, self.counts
        )

    async def answer(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        if not self.is_eager:
            self.has_begun.set()
            await self.may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        self.has_begun.set()
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"k"})

    async def stop(self) -> None:
        """Stop, and return once the open connections have been told."""
        self.server.stop()
        async with asyncio.timeout(HANG_SECONDS):
            await self.is_closing.wait()

    async def until_connected(self, number: int) -> None:
        """Return once so many connections are open."""
        await until(lambda: len(self.server.server_state.connections) == number)


@asynccontextmanager
async def running(stoppable: Stoppable) -> AsyncIterator[None]:
    """Run the server; all its connections have to end."""
    task = asyncio.create_task(stoppable.server.run_until_stopped())
    try:
        yield
    finally:
        stoppable.server.stop()
        async with asyncio.timeout(HANG_SECONDS / 2):  # the server itself would cut them later
            await task


async def closed_after(client: RawClient) -> RawAnswer:
    """Return an answer behind which the connection is closed, as it says."""
    answer = await client.answer()
    assert (answer.status, answer.body, answer.headers.get("connection")) == (200, b"ok", "close")
    assert await client.rest() == b""
    return answer


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
async def test_a_connection_that_has_sent_nothing_yet_is_answered(*, is_shared: bool) -> None:
    with ConnectionCounts.make_file() as file:
        stoppable = Stoppable(PATIENT, ConnectionCounts(file.fileno()) if is_shared else None)
        stoppable.may_end.set()
        async with running(stoppable), connected(stoppable.url) as client:
            await stoppable.until_connected(1)
            await stoppable.stop()
            client.send(REQUEST)
            await closed_after(client)


async def test_a_kept_connection_is_answered_once_more() -> None:
    stoppable = Stoppable(PATIENT)
    stoppable.may_end.set()
    async with running(stoppable), connected(stoppable.url) as client:
        client.send(REQUEST)
        first = await client.answer()
        await stoppable.stop()
        client.send(REQUEST)
        await closed_after(client)

    assert "connection" not in first.headers


async def test_a_request_whose_head_has_begun_is_answered() -> None:
    stoppable = Stoppable(QUICK)
    stoppable.may_end.set()
    async with running(stoppable), connected(stoppable.url) as client, connected(stoppable.url) as idle:
        client.send(HEAD)
        await stoppable.until_connected(2)
        await stoppable.stop()
        assert await idle.rest() == b""
        client.send(b"\r\n")
        await closed_after(client)


async def test_a_request_that_is_being_answered_says_that_the_connection_closes() -> None:
    stoppable = Stoppable(QUICK, is_eager=False)
    async with running(stoppable), connected(stoppable.url) as client:
        client.send(REQUEST)
        await stoppable.has_begun.wait()
        await stoppable.stop()
        stoppable.may_end.set()
        await closed_after(client)


async def test_a_connection_whose_answer_had_begun_is_answered_once_more() -> None:
    stoppable = Stoppable(PATIENT)
    async with running(stoppable), connected(stoppable.url) as client:
        client.send(REQUEST)
        await stoppable.has_begun.wait()
        await stoppable.stop()
        stoppable.may_end.set()
        first = await client.answer()
        client.send(REQUEST)
        await closed_after(client)

    assert "connection" not in first.headers


async def test_requests_that_wait_in_line_are_all_answered() -> None:
    stoppable = Stoppable(PATIENT, is_eager=False)
    async with running(stoppable), connected(stoppable.url) as client:
        client.send(REQUEST * 3)
        await stoppable.has_begun.wait()
        await stoppable.stop()
        stoppable.may_end.set()
        answers = [await client.answer(), await client.answer()]
        await closed_after(client)

    assert ["connection" in answer.headers for answer in answers] == [False, False]


async def test_idle_connections_are_closed_so_that_the_server_ends() -> None:
    stoppable = Stoppable(QUICK)
    stoppable.may_end.set()
    async with running(stoppable), connected(stoppable.url) as kept, connected(stoppable.url) as silent:
        kept.send(REQUEST)
        await kept.answer()
        await stoppable.until_connected(2)
        await stoppable.stop()
        assert await kept.rest() == b""
        assert await silent.rest() == b""


async def test_a_websocket_is_refused_while_the_server_stops() -> None:
    stoppable = Stoppable(PATIENT)
    async with running(stoppable), connected(stoppable.url) as client:
        await stoppable.until_connected(1)
        await stoppable.stop()
        client.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n" % WEBSOCKET_PATH + UPGRADE)
        answer = await client.answer()
        assert await client.rest() == b""

    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert b"/problems/service_stopping" in answer.body
