"""Peers of Socket Mode that send without end: what is in hand is bounded, and a connection can be closed."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from fakes.slack_double import APP_TOKEN, BOT_TOKEN, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import IDENTITY, no_command
from fakes.waiting import HANG_SECONDS, until
from throughline.slack import socket_mode
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig
from throughline.slack.socket_mode import MAX_IN_HAND, SocketConnection

Send = Callable[[web.WebSocketResponse], Awaitable[None]]
Take = Callable[[object], Awaitable[None]]


@asynccontextmanager
async def connected(send: Send, take: Take) -> AsyncGenerator[SocketConnection]:
    """Yield a connection to a peer that does nothing but `send`; it is closed by the test."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        with suppress(ConnectionError):
            await send(socket)
        return socket

    server = web.Application()
    server.router.add_get("/", serve)
    runner = web.AppRunner(server, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = SlackConfig(BOT_TOKEN, app_token=APP_TOKEN)
    connection = SocketConnection(make_bolt(config, IDENTITY, Listeners(take, no_command)), config)
    try:
        await connection.open(site_url(runner))
        yield connection
    finally:
        await runner.cleanup()


def site_url(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"ws://{host}:{port}/"


async def ignore(_body: object) -> None:
    """Take nothing."""


@pytest.mark.parametrize("text", ["nonsense", "[]", "7", '{"type": 3}', "[" * 5_000])
async def test_a_peer_that_goes_on_sending_cannot_keep_a_connection_open(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_mode, "CLOSING_SECONDS", 0.1)  # so long a goodbye is waited for, which never comes

    async def send(socket: web.WebSocketResponse) -> None:
        while True:
            await socket.send_str(text)
            await asyncio.sleep(0)  # the peer has the same loop as we have

    async with connected(send, ignore) as connection, asyncio.timeout(HANG_SECONDS):
        assert await connection.is_connected()
        await connection.close()  # type: ignore[no-untyped-call]  # the SDK left it without types

        assert not await connection.is_connected()


async def test_only_so_many_events_are_in_hand_and_all_are_taken() -> None:
    begun, ended, most, may_end = 0, 0, 0, asyncio.Event()

    async def take(_body: object) -> None:
        nonlocal begun, ended, most
        begun += 1
        most = max(most, begun - ended)
        await may_end.wait()
        ended += 1

    async def send(socket: web.WebSocketResponse) -> None:
        for number in range(2 * MAX_IN_HAND):
            envelope = {"envelope_id": f"{number}", "type": "events_api", "payload": message(say("hello"))}
            await socket.send_str(json.dumps(envelope))
        while not socket.closed:
            await socket.receive()

    async with connected(send, take) as connection:
        await until(lambda: begun == MAX_IN_HAND)
        may_end.set()
        await until(lambda: ended == 2 * MAX_IN_HAND)
        await connection.close()  # type: ignore[no-untyped-call]  # the SDK left it without types

    assert most == MAX_IN_HAND
