"""A stream on which nothing happens does not outlive its key, nor the process."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from fakes.raw_sql import run_sql
from throughline.db.database import Database

TIMEOUT_SECONDS = 60.0
QUICK = replace(KEYED, heartbeat_seconds=0.05, key_cache_seconds=0.05)
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
    stage = set_stage(database, QUICK)
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
    stage = set_stage(database, QUICK)
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
    stage = set_stage(database, QUICK)
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
