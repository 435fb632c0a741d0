"""Bodies are capped before parsing, whether or not their length is declared, and must arrive in time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.api_stage import ApiStage, set_stage
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.http.services import ApiConfig

CAP = 10_000
CONFIG = ApiConfig(version="0", is_local_mode=True, max_body_bytes=CAP)
SIZES = {CAP: 201, CAP + 1: 413, 5_000_000: 413}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, CONFIG)


def body_of(size: int) -> bytes:
    return b'{"agent": "assistant"' + b" " * (size - 22) + b"}"


async def in_pieces(body: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def test_the_cap_holds_whether_or_not_a_length_is_declared(stage: ApiStage, subtests: pytest.Subtests) -> None:
    cases = [(size, status, is_declared) for size, status in SIZES.items() for is_declared in (True, False)]
    async with stage.served() as client:
        for size, status, is_declared in cases:
            with subtests.test(f"{size} bytes, {is_declared=}"):
                content = body_of(size) if is_declared else in_pieces(body_of(size))
                response = await client.post("/v1/sessions", content=content, headers=JSON)
                after = await client.get("/health/live")

                assert response.status_code == status
                assert status == 201 or response.json()["type"] == "/problems/body_too_large"
                assert after.status_code == 200


async def test_a_slow_body_is_answered_with_408(database: Database) -> None:
    async with set_stage(database, replace(CONFIG, body_timeout_seconds=0.2)).served() as client:
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
