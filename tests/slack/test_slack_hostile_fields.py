"""Values that no field of Slack's has: each is refused or acknowledged, and none ends in an error inside."""

import asyncio
import copy
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import repeat
from typing import Any

import pytest
from aiohttp import web
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from fakes.raw_http_server import JSON, Answer, serve_raw
from fakes.slack_delivery import IDENTITY, DeliveryStage, SlackStage, no_command
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Failure, Limit, say, sign
from fakes.slack_double.payloads import Said, app_mention, deleted, edited, left, message, reaction
from fakes.waiting import HANG_SECONDS, ManualClock, until
from throughline.domain.basic_types import JsonObject as Json
from throughline.slack import socket_mode
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig
from throughline.slack.front_end import bounded_session
from throughline.slack.socket_mode import MAX_IN_HAND, SocketConnection
from throughline.slack.web_api import SlackLimited, SlackUnsure, SlackWebApi, Thread

LONG = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(256)) * 6
"""Too much for an index of the database, which packs what repeats itself within some hundred characters."""

GENUINE: dict[str, Callable[[Said], Json]] = {
    "message": message,
    "mention": app_mention,
    "edit": lambda said: edited(said, "changed"),
    "deletion": deleted,
    "stop sign": lambda said: reaction("octagonal_sign", user=said.user, channel=said.channel, ts=said.ts),
    "leaving": lambda said: left(said.channel, user=said.user),
}
REFUSED = "`user` has more than 64 bytes, which no id of Slack's has"
Path = tuple[str | int, ...]


def fields_of(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield where each plain value stands."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields_of(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields_of(inner, (*path, number))
    else:
        yield path


def changed(payload: Mapping[str, object], path: Path, value: object) -> str:
    """Return the payload with `value` at `path`."""
    body: Any = copy.deepcopy(dict(payload))  # Any: JSON, walked along a path
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(body)


@pytest.mark.slow
@pytest.mark.parametrize("value", [LONG, "1" * 5_000, -1, {}], ids=["long", "digits", "number", "object"])
async def test_no_field_of_an_event_can_break_its_taking(stage: SlackStage, value: object) -> None:
    cases = [(kind, path) for kind, make in GENUINE.items() for path in fields_of(make(say("hello")))]
    broken = []
    with capture_logs() as logged:
        for kind, path in cases:
            body = changed(GENUINE[kind](say("hello", thread_ts="1700000000.000100")), path, value)
            if (await stage.sender.post(body, "application/json", {})).status not in {200, 400, 404}:
                broken.append((kind, path))

    assert broken == []
    assert [entry for entry in logged if entry["log_level"] == "error"] == []


async def test_an_id_that_no_one_could_have_is_refused_with_its_name_and_one_line(stage: SlackStage) -> None:
    with capture_logs() as logged:
        answer = await stage.sender.once(message(say("hello", user=LONG)))

    assert (answer.status, json.loads(answer.text)) == (400, {"error": REFUSED})
    assert [(entry["log_level"], entry["reason"]) for entry in logged] == [("warning", REFUSED)]


async def test_a_defect_behind_the_interface_is_logged_as_an_error_with_where_it_is() -> None:
    async def broken(_body: object) -> None:
        raise LookupError("a text of somebody's")

    bolt = make_bolt(SlackConfig(BOT_TOKEN, SIGNING_SECRET), IDENTITY, Listeners(broken, no_command))
    with capture_logs() as logged:
        body = json.dumps(message(say("hello")))
        answer = await bolt.async_dispatch(
            AsyncBoltRequest(body=body, headers={name.lower(): [sent] for name, sent in sign(body).items()})
        )

    assert answer.status == 500
    [entry] = logged
    assert (entry["log_level"], entry["error"], "broken:" in entry["where"]) == ("error", "LookupError", True)
    assert "somebody" not in str(entry)


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


@pytest.mark.parametrize("status", [200, 500])
async def test_a_response_of_slack_without_an_end_is_given_up_and_the_next_one_read(status: int) -> None:
    endless = Answer(repeat(b"y" * 1_000_000), status=status, content_type=JSON)
    async with (
        serve_raw(endless, Answer(['{"ok": true, "user": {"id": "U1"}}'])) as server,
        bounded_session() as session,
    ):
        client = AsyncWebClient(token="xoxb-1", base_url=f"{server.url}/", session=session, retry_handlers=[])
        calls = SlackWebApi(client, ManualClock())
        with pytest.raises(SlackUnsure, match=r"users\.info: ClientPayloadError"):
            await calls.user_info("U1")

        user = await calls.user_info("U1")

    assert user == {"id": "U1"}


MANY = 100


async def post(calls: SlackWebApi, number: int, channel: str = "C0GENERAL") -> str:
    return await calls.post(Thread(channel, "1700000001.000001", "U0ANNA001", "T0DOUBLE1"), f"{number}", {})


async def test_a_hundred_posts_into_a_limited_channel_need_few_calls(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(1, 1)

    posts = await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(MANY)))

    assert len(set(posts)) == MANY
    assert len(outgoing.double.workspace.called("chat.postMessage")) <= 4 * MANY


async def test_who_waits_in_a_line_that_moves_is_not_sent_away(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(1, 10, retry_after=10)

    posts = await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(MANY)))

    assert len(set(posts)) == MANY
    assert outgoing.clock.monotonic() > 600


async def test_a_line_in_which_nobody_comes_through_gives_up(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(0, 60, retry_after=60)

    outcomes = await asyncio.gather(
        *(post(outgoing.services.calls, number) for number in range(20)), return_exceptions=True
    )

    assert {type(outcome) for outcome in outcomes} == {SlackLimited}
    assert len(outgoing.double.workspace.called("chat.postMessage")) <= 20 + 10


async def test_a_limit_in_one_channel_holds_up_no_other(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(status=429, retry_after=30))

    await post(outgoing.services.calls, 1, "C0BUSY001")
    slept = list(outgoing.clock.slept)
    await post(outgoing.services.calls, 2, "C0QUIET01")

    assert slept == outgoing.clock.slept == [30.0]


async def test_a_shorter_pause_named_later_does_not_end_a_longer_one(outgoing: DeliveryStage) -> None:
    failures = [Failure(status=429, retry_after=seconds) for seconds in (50, 2, 2)]
    outgoing.double.rules.fail("chat.postMessage", *failures)

    await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(3)))

    times = [call.at for call in outgoing.double.workspace.called("chat.postMessage") if call.outcome == "ok"]
    assert min(times) >= 50


async def test_a_call_that_may_be_left_out_does_not_stand_in_line(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("assistant.threads.setStatus", Failure(status=429, retry_after=30))
    calls = outgoing.services.calls
    with pytest.raises(SlackLimited):
        await calls.set_status("D0ANNA001", "1.1", "is thinking…")
    outgoing.clock.advance(31)
    outgoing.double.rules.fail("assistant.threads.setStatus", *[Failure(status=429, retry_after=30)])

    tries = [calls.set_status("D0ANNA001", "1.1", "is thinking…") for _ in range(30)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {SlackLimited}
    await until(lambda: len(outgoing.double.workspace.called("assistant.threads.setStatus")) == 2)
