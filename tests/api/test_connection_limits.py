"""What a connection may take of the server: no client keeps one for nothing, and there are only so many."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from fakes.raw_http_server import RawAnswer, RawClient, connected
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.http.protocol import PIECE_BYTES, ConnectionLimits
from throughline.http.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bound_url
from throughline.http.services import ApiConfig

QUICK = ConnectionLimits(head_seconds=1.5, rest_seconds=1.5)
PATIENT = ConnectionLimits(head_seconds=3_600, rest_seconds=3_600)
CONFIG = ApiConfig(version="0", is_local_mode=True, max_body_bytes=10_000)
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
AGENTS = b"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"agent": "assistant"}'
POST = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"


@asynccontextmanager
async def serving(database: Database, limits: ConnectionLimits, config: ApiConfig = CONFIG) -> AsyncIterator[str]:
    """Serve as `throughline serve` does; yields the address."""
    async with serving_app(set_stage(database, config).app, limits) as url:
        yield url


@asynccontextmanager
async def serving_app(app: ASGIApp, limits: ConnectionLimits) -> AsyncIterator[str]:
    """Serve an application; yields the address."""

    async def nothing() -> None:
        """Nothing runs that has to end first."""

    listener = bind_tcp(TcpAddress("127.0.0.1", 0))
    server = HttpServer(app, listener, Shutdown(nothing, grace_seconds=1), limits)
    running = asyncio.create_task(server.run_until_stopped())
    try:
        yield bound_url(listener)
    finally:
        server.stop()
        await running


def told(answer: RawAnswer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["type"]


@pytest.mark.slow
async def test_a_silent_connection_is_closed(database: Database) -> None:
    async with serving(database, QUICK) as url, connected(url) as client:
        assert await client.rest() == b""


@pytest.mark.slow
async def test_a_dripping_head_is_refused_and_closed(database: Database) -> None:
    async with serving(database, QUICK) as url, connected(url) as client:
        dripping = asyncio.create_task(client.drip(b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 10_000, 0.01))
        answer = await client.answer()
        rest = await client.rest()
        dripping.cancel()

    assert told(answer) == (408, "/problems/head_too_slow")
    assert answer.headers["connection"] == "close"
    assert rest == b""


@pytest.mark.slow
async def test_a_second_head_has_its_time_too(database: Database) -> None:
    async with serving(database, QUICK) as url, connected(url) as client:
        client.send(LIVE)
        first = await client.answer()
        client.send(b"GET / HTTP/1.1\r\n")
        second = await client.answer()

    assert first.status == 200
    assert told(second) == (408, "/problems/head_too_slow")


async def test_a_head_without_end_is_refused(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(b"GET / HTTP/1.1\r\n" + b"X-Much: " + b"x" * (PATIENT.max_head_bytes + 1))
        answer = await client.answer()

    assert told(answer) == (431, "/problems/head_too_large")


async def test_a_body_behind_a_head_does_not_count_as_head(database: Database) -> None:
    limits = replace(PATIENT, max_head_bytes=200)
    async with serving(database, limits) as url, connected(url) as client:
        for _ in range(2):
            client.send(POST + b"Content-Length: 1000\r\n\r\n" + BODY + b" " * (1000 - len(BODY)))
            assert (await client.answer()).status == 201


async def test_after_a_body_that_came_too_slowly_the_connection_is_closed(database: Database) -> None:
    config = replace(CONFIG, body_timeout_seconds=0.2)
    async with serving(database, PATIENT, config) as url, connected(url) as client:
        client.send(POST + b'Content-Length: 100\r\n\r\n{"agent"')
        answer = await client.answer()
        rest = await client.rest()

    assert told(answer) == (408, "/problems/body_too_slow")
    assert rest == b""


@pytest.mark.slow
async def test_the_rest_of_a_refused_body_may_not_drip_for_ever(database: Database) -> None:
    async with serving(database, QUICK) as url, connected(url) as client:
        client.send(POST + b"Content-Length: 1000000\r\n\r\n")
        answer = await client.answer()
        dripping = asyncio.create_task(client.drip(b"x" * 100_000, 0.01))
        await client.rest()
        dripping.cancel()

    assert told(answer) == (413, "/problems/body_too_large")


async def test_a_refused_body_that_comes_at_once_keeps_its_connection(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(POST + b"Content-Length: 20000\r\n\r\n" + b"x" * 20_000)
        refused = await client.answer()
        client.send(LIVE)
        after = await client.answer()

    assert (refused.status, after.status) == (413, 200)


@pytest.mark.parametrize("upgrade", [UPGRADE, UPGRADE.replace(b"websocket", b"h2c")], ids=["websocket", "h2c"])
async def test_a_request_that_would_change_the_protocol_is_answered_in_this_one(
    database: Database, upgrade: bytes
) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(POST + upgrade + b"Content-Length: 22\r\n\r\n" + BODY)
        posted = await client.answer()
        client.send(LIVE.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"\r\n"))
        got = await client.answer()
        client.send(LIVE)
        after = await client.answer()

    assert (posted.status, got.status, after.status) == (201, 200, 200)


async def until_held(client: RawClient) -> None:
    """Return once the server has taken the connection."""
    client.send(LIVE)
    assert (await client.answer()).status == 200


async def test_beyond_the_limit_only_the_health_is_told(database: Database) -> None:
    async with serving(database, replace(PATIENT, max_connections=2)) as url, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(connected(url)) for _ in range(2)]
        await until_held(first)
        await until_held(second)
        third = await stack.enter_async_context(connected(url))
        third.send(LIVE + AGENTS)
        health, refused, rest = await third.answer(), await third.answer(), await third.rest()
        first.send(AGENTS)
        served = await first.answer()
        second.close()
        await second.rest()
        again = await _first_served(url)

    assert health.status == 200
    assert told(refused) == (503, "/problems/too_many_connections")
    assert (refused.headers["retry-after"], rest) == ("5", b"")
    assert (served.status, again.status) == (200, 200)


async def _first_served(url: str) -> RawAnswer:
    """Connect until the server has noticed that a place is free."""
    while True:
        async with connected(url) as client:
            client.send(AGENTS)
            answer = await client.answer()
            if answer.status != 503:
                return answer


async def test_beyond_the_reserve_connections_are_closed_at_once(database: Database) -> None:
    limits = replace(PATIENT, max_connections=1, reserve=1)
    async with serving(database, limits) as url, AsyncExitStack() as stack:
        for _ in range(2):
            await until_held(await stack.enter_async_context(connected(url)))
        third = await stack.enter_async_context(connected(url))
        rest = await third.rest()

    assert rest == b""


@pytest.mark.slow
async def test_blank_lines_behind_an_answer_keep_no_connection(database: Database) -> None:
    async with serving(database, QUICK) as url, connected(url) as client:
        client.send(LIVE)
        answer = await client.answer()
        client.send(b"\r\n")

        assert answer.status == 200
        assert (await client.rest()).startswith(b"HTTP/1.1 408 ")


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"16\r\n" + BODY + b"\r\n"
MUCH = PATIENT.max_head_bytes + 2 * PIECE_BYTES
ENDLESS = {
    "one trailer": b"0\r\nX: " + b"y" * MUCH,
    "many trailers": b"0\r\n" + b"a:\r\n" * (MUCH // 4),
    "an extension": b"5;" + b"x" * MUCH,
    "a trailer behind a chunk": CHUNK + b"0\r\nX: " + b"y" * MUCH,
}


@pytest.mark.parametrize("tail", ENDLESS.values(), ids=ENDLESS)
async def test_what_is_no_body_behind_a_head_is_capped_as_the_head_is(database: Database, tail: bytes) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(CHUNKED + tail)
        answer = await client.answer()
        rest = await client.rest()

    assert told(answer) == (431, "/problems/head_too_large")
    assert rest == b""


async def test_trailers_without_end_close_a_connection_that_was_answered(database: Database) -> None:
    config = replace(CONFIG, is_local_mode=False)
    async with serving(database, PATIENT, config) as url, connected(url) as client:
        client.send(CHUNKED)
        answer = await client.answer()
        client.send(b"0\r\n" + b"a:\r\n" * (MUCH // 4))
        rest = await client.rest()

    assert (answer.status, rest) == (401, b"")


async def test_chunks_and_trailers_of_a_usual_size_are_taken(database: Database) -> None:
    pieces = b"".join(b"1;name=value\r\n%c\r\n" % byte for byte in BODY)
    async with serving(database, replace(PATIENT, max_head_bytes=200)) as url, connected(url) as client:
        client.send(CHUNKED + pieces + b"0\r\nX-Checksum: 1\r\n\r\n")
        posted = await client.answer()
        client.send(LIVE)
        after = await client.answer()

    assert (posted.status, after.status) == (201, 200)


async def test_more_headers_than_are_taken_are_refused(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(b"GET /health/live HTTP/1.1\r\n" + b"a:\r\n" * (PATIENT.max_headers + 2))
        answer = await client.answer()

    assert told(answer) == (431, "/problems/head_too_large")


async def test_the_rest_of_an_answered_request_has_its_most_bytes(database: Database) -> None:
    limits = replace(PATIENT, max_rest_bytes=100_000)
    async with serving(database, limits) as url, connected(url) as client:
        client.send(POST + b"Content-Length: 1000000\r\n\r\n")
        answer = await client.answer()
        client.send(b"x" * 500_000)
        rest = await client.rest()

    assert (told(answer), rest) == ((413, "/problems/body_too_large"), b"")


async def test_of_requests_sent_at_once_so_many_are_answered_as_may_wait(database: Database) -> None:
    limits = replace(PATIENT, max_requests_in_line=3)
    async with serving(database, limits) as url, connected(url) as client:
        client.send(LIVE * 1_000)
        rest = await client.rest()

    assert rest.count(b"HTTP/1.1 200 ") == 4


async def test_what_is_no_http_behind_a_request_costs_it_no_answer(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(AGENTS + b"\x16\x03\x01 no HTTP\r\n\r\n")
        answer = await client.answer()
        rest = await client.rest()

    assert (answer.status, rest) == (200, b"")


async def test_what_is_no_http_in_a_waiting_request_costs_the_one_before_no_answer(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(AGENTS + CHUNKED + b"zz\r\n")
        answer = await client.answer()
        rest = await client.rest()

    assert (answer.status, rest) == (200, b"")


async def test_a_client_that_reads_nothing_of_an_answer_is_cut_off() -> None:
    is_cut = asyncio.Event()

    async def answer_much(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 50_000_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})  # waits for the client, or its end
        is_cut.set()

    async with serving_app(answer_much, replace(PATIENT, write_seconds=0.1)) as url, connected(url) as client:
        client.send(LIVE)
        async with asyncio.timeout(HANG_SECONDS):
            await is_cut.wait()
        received = await client.rest()

    assert len(received) < 50_000_000


async def test_what_is_no_http_is_refused_with_a_problem_document(database: Database) -> None:
    async with serving(database, PATIENT) as url, connected(url) as client:
        client.send(b"\x16\x03\x01 no HTTP\r\n\r\n")
        answer = await client.answer()

    assert told(answer) == (400, "/problems/malformed_request")


TIMEOUT_SECONDS = 60.0
SLOW_QUICK = replace(KEYED, heartbeat_seconds=0.05, key_cache_seconds=0.05)
SLOW = replace(KEYED, heartbeat_seconds=3_600)


async def begin(stage: ApiStage, client: httpx.AsyncClient) -> str:
    """Start a turn that waits before its end; return the path of its events."""
    session = await open_session(client)
    stage.turns.may_end.clear()
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"})
    await stage.turns.has_begun.wait()
    return f"{accepted.headers['location']}/events"


async def until_cut(client: httpx.AsyncClient, path: str, begun: asyncio.Event) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await read(client, path, begun)


async def read(client: httpx.AsyncClient, path: str, begun: asyncio.Event) -> None:
    async with client.stream("GET", path) as response:
        async for _ in response.aiter_text():
            begun.set()


async def test_a_stream_is_cut_once_its_key_is_revoked_and_others_are_not(database: Database) -> None:
    stage = set_stage(database, SLOW_QUICK)
    secret, other = await stage.key("anna"), await stage.key("anna")
    async with stage.served() as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        path, begun = await begin(stage, client), asyncio.Event()
        cut = asyncio.create_task(until_cut(client, path, begun))
        kept = asyncio.create_task(client.get(path, headers={"Authorization": f"Bearer {other}"}))
        await begun.wait()
        await database.keys.revoke(secret.split("_")[1])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await cut
        await stage.turns.settle()

        assert "run.completed" in (await kept).text


async def test_a_stream_is_cut_once_its_access_token_has_expired(database: Database, database_url: str) -> None:
    stage = set_stage(database, SLOW_QUICK)
    async with stage.served() as client:
        client.headers["Authorization"] = f"Bearer {await stage.key('anna')}"
        token = (await client.post("/v1/tokens", json={})).json()["token"]
        path, begun = await begin(stage, client), asyncio.Event()
        del client.headers["Authorization"]
        cut = asyncio.create_task(until_cut(client, f"{path}?access_token={token}", begun))
        await begun.wait()
        await run_sql(database_url, "update access_tokens set expires_at = now()")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await cut
        await stage.turns.settle()


async def test_a_request_that_waits_for_its_answer_is_refused_once_its_key_is_revoked(database: Database) -> None:
    stage = set_stage(database, SLOW_QUICK)
    secret = await stage.key("anna")
    async with stage.served() as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        session = await open_session(client)
        stage.turns.may_end.clear()
        waiting = asyncio.create_task(client.post(f"{session}/messages", json={"content": "hi"}))
        await stage.turns.has_begun.wait()
        await database.keys.revoke(secret.split("_")[1])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer = await waiting
        await stage.turns.settle()

    assert answer.status_code == 401


async def test_a_stream_that_waits_is_cut_at_once_when_the_process_stops(database: Database) -> None:
    stage = set_stage(database, SLOW)
    async with stage.served() as client:
        client.headers["Authorization"] = f"Bearer {await stage.key('anna')}"
        path, begun = await begin(stage, client), asyncio.Event()
        cut = asyncio.create_task(until_cut(client, path, begun))
        await begun.wait()
        stage.services.cut_off()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await cut
        await stage.turns.settle()
