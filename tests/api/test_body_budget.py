"""Bodies held at once have a budget, of which each owner has a share; what has no room waits, and then is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import UUID

import pytest
from starlette.types import Message, Receive, Scope, Send

from fakes.api_stage import ApiStage, set_stage
from fakes.raw_http_server import connected
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.http.body import BodyCap, BodyMemory, BodyReservation, Cap
from throughline.http.route_errors import BodyMemoryExhausted
from throughline.http.services import ApiConfig

ANNA, BEN, CARL = (UserId(UUID(int=number)) for number in (1, 2, 3))
LARGE = 100_000
CONFIG = ApiConfig(
    version="0", is_local_mode=True, max_body_bytes=LARGE, max_import_bytes=LARGE, max_held_body_bytes=LARGE
)
JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BODY = b'{"agent": "assistant"' + b" " * (LARGE - 22) + b"}"


@pytest.fixture
def budget() -> BodyMemory:
    return BodyMemory(total_bytes=100, largest_body_bytes=50)


async def waits(budget: BodyMemory, owner_id: UserId | None, size: int) -> asyncio.Task[None]:
    """Begin to take bytes; returns once they are taken or waited for."""
    task = asyncio.create_task(budget.take(owner_id, size, 3_600))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def has_room(budget: BodyMemory, owner_id: UserId | None, size: int) -> bool:
    """Take bytes if they are there now."""
    try:
        await budget.take(owner_id, size, 0)
    except BodyMemoryExhausted:
        return False
    return True


async def test_an_owner_has_half_and_others_pass_who_waits_for_it(budget: BodyMemory) -> None:
    await budget.take(ANNA, 50, 1)
    further = await waits(budget, ANNA, 10)
    await budget.take(BEN, 50, 1)

    assert not further.done()
    budget.give_back(ANNA, 50)
    await further


async def test_bodies_of_nobody_have_one_share_together(budget: BodyMemory) -> None:
    await budget.take(None, 50, 1)
    further = await waits(budget, None, 1)

    assert not further.done()
    budget.give_back(None, 50)
    await further


async def test_a_large_body_is_not_passed_by_small_ones_for_ever(budget: BodyMemory) -> None:
    await budget.take(ANNA, 50, 1)
    await budget.take(BEN, 20, 1)
    large, small = await waits(budget, CARL, 50), await waits(budget, BEN, 10)
    assert (large.done(), small.done()) == (False, False)

    budget.give_back(ANNA, 50)

    await asyncio.gather(large, small)


@pytest.mark.parametrize("is_admitted", [False, True])
async def test_who_gives_up_waiting_holds_nothing(budget: BodyMemory, *, is_admitted: bool) -> None:
    await budget.take(ANNA, 50, 1)
    given_up = await waits(budget, ANNA, 50)
    assert not given_up.done()
    if is_admitted:  # in the very moment in which it gives up
        budget.give_back(ANNA, 50)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    if not is_admitted:
        budget.give_back(ANNA, 50)

    assert given_up.cancelled()
    assert await has_room(budget, ANNA, 50)


async def test_who_waited_in_vain_is_told_the_setting(budget: BodyMemory) -> None:
    await budget.take(ANNA, 50, 1)
    with pytest.raises(BodyMemoryExhausted, match="MAX_HELD_BODY_BYTES"):
        await budget.take(ANNA, 1, 0)
    budget.give_back(ANNA, 50)

    assert await has_room(budget, ANNA, 50)


async def test_small_bodies_need_no_room(budget: BodyMemory) -> None:
    await budget.take(None, 50, 1)
    held = BodyReservation(budget, 65_536, timeout_seconds=0)

    await held.take()
    is_held = held.is_held
    held.release()

    assert not is_held
    assert not await has_room(budget, None, 1)


async def test_a_body_that_never_arrives_gives_its_room_back(database: Database) -> None:
    config = replace(CONFIG, body_timeout_seconds=0.5)
    async with set_stage(database, config).served() as client, AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(connected(str(client.base_url))) for _ in range(2)]
        first.send(HEAD % LARGE + BODY[:-1])
        small = await client.post("/v1/sessions", json={"agent": "assistant"})
        late = await first.answer()
        second.send(HEAD % LARGE + BODY)
        served = await second.answer()

    assert (small.status_code, late.status, served.status) == (201, 408, 201)


async def test_bodies_beyond_the_budget_are_taken_one_after_the_other(database: Database) -> None:
    async with set_stage(database, CONFIG).served() as client:
        answers = await asyncio.gather(*(client.post("/v1/sessions", content=BODY, headers=JSON) for _ in range(8)))

    assert [answer.status_code for answer in answers] == [201] * 8


async def test_a_body_that_was_read_holds_nothing_while_its_turn_runs(database: Database) -> None:
    stage = set_stage(database, replace(CONFIG, body_timeout_seconds=1.0))
    stage.turns.may_end.clear()
    async with stage.served() as client:
        session = (await client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        message = b'{"content": "hello"' + b" " * (LARGE - 20) + b"}"
        path = f"/v1/sessions/{session}/messages"
        sent = asyncio.create_task(client.post(path, content=message, headers=JSON))
        await stage.turns.has_begun.wait()
        created = await client.post("/v1/sessions", content=BODY, headers=JSON)
        stage.turns.may_end.set()
        answered = await sent

    assert (created.status_code, answered.status_code) == (201, 200)


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body[:5]
    yield body[5:]


async def test_a_small_body_without_a_declared_length_needs_no_room(database: Database) -> None:
    async with set_stage(database, CONFIG).served() as client, connected(str(client.base_url)) as holding:
        holding.send(HEAD % LARGE + BODY[:-1])
        answer = await client.post("/v1/sessions", content=in_pieces(b'{"agent": "assistant"}'), headers=JSON)

    assert answer.status_code == 201


async def test_a_request_without_a_body_needs_no_room() -> None:
    received: list[Message] = []

    async def read_once(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        received.append(await receive())

    async def endless() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def at_once() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def unsent(message: Message) -> None:
        raise AssertionError(message)

    app = BodyCap(read_once, cap=Cap(LARGE, "X"), own_caps={}, total_bytes=LARGE, timeout_seconds=3_600)
    scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"%d" % LARGE)]}
    holding = asyncio.create_task(app(scope, endless, unsent))
    await asyncio.sleep(0)
    async with asyncio.timeout(HANG_SECONDS):
        await app({"type": "http", "path": "/", "headers": []}, at_once, unsent)
    holding.cancel()

    assert len(received) == 1


CAP = 10_000
CAP_CONFIG = ApiConfig(version="0", is_local_mode=True, max_body_bytes=CAP)
SIZES = {CAP: 201, CAP + 1: 413, 5_000_000: 413}


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, CAP_CONFIG)


def body_of(size: int) -> bytes:
    return b'{"agent": "assistant"' + b" " * (size - 22) + b"}"


async def in_pieces_cap(body: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def test_the_cap_holds_whether_or_not_a_length_is_declared(stage: ApiStage, subtests: pytest.Subtests) -> None:
    cases = [(size, status, is_declared) for size, status in SIZES.items() for is_declared in (True, False)]
    async with stage.served() as client:
        for size, status, is_declared in cases:
            with subtests.test(f"{size} bytes, {is_declared=}"):
                content = body_of(size) if is_declared else in_pieces_cap(body_of(size))
                response = await client.post("/v1/sessions", content=content, headers=JSON)
                after = await client.get("/health/live")

                assert response.status_code == status
                assert status == 201 or response.json()["type"] == "/problems/body_too_large"
                assert after.status_code == 200


async def test_a_slow_body_is_answered_with_408(database: Database) -> None:
    async with set_stage(database, replace(CAP_CONFIG, body_timeout_seconds=0.2)).served() as client:
        host, port = client.base_url.host, client.base_url.port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(
            b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"agent"'
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), HANG_SECONDS)
        writer.close()

    assert head.startswith(b"HTTP/1.1 408")


async def test_a_refused_declaration_is_answered_before_the_body_is_sent(stage: ApiStage) -> None:
    async with stage.served() as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(
            b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999999999999999\r\n\r\n"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), HANG_SECONDS)
        writer.close()

    assert head.split()[1] in {b"413", b"400"}


async def test_a_refusal_reaches_pages_of_allowed_origins(database: Database) -> None:
    origin = "https://app.example"
    config = ApiConfig(version="0", is_local_mode=True, max_body_bytes=CAP, cors_origins=(origin,))
    async with set_stage(database, config).client() as client:
        refused = await client.post("/v1/sessions", content=body_of(CAP + 1), headers={**JSON, "Origin": origin})
        opened = await client.post("/v1/sessions", json={"agent": "assistant"}, headers={"Origin": origin})
        asked = await client.options(
            "/v1/sessions",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "idempotency-key,authorization",
            },
        )
        stranger = await client.get("/health/live", headers={"Origin": "https://evil.example"})

    assert refused.headers["access-control-allow-origin"] == origin
    assert "Location" in opened.headers["access-control-expose-headers"]
    assert asked.status_code == 200
    assert "access-control-allow-origin" not in stranger.headers


async def test_an_import_has_a_cap_of_its_own(database: Database) -> None:
    config = ApiConfig(version="0", is_local_mode=True, max_body_bytes=1_000, max_import_bytes=CAP)
    async with set_stage(database, config).client() as client:
        answers = [
            await client.post(
                "/v1/sessions/import",
                json={"agent": "assistant", "messages": [{"role": "user", "content": "x" * size}]},
            )
            for size in (CAP - 1_000, CAP)
        ]

    assert [answer.status_code for answer in answers] == [201, 413]
    assert "MAX_IMPORT_BYTES" in answers[1].text
