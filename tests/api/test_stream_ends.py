"""How streams end that have nothing stored to end with: events that are gone, sessions that were erased."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from app.api.config import ApiConfig
from app.db.database import Database
from fakes.api_stage import ApiStage, open_session, set_stage
from fakes.raw_sql import run_sql

SLOW_HEART = ApiConfig(version="0.0.0", is_local_mode=True, heartbeat_seconds=60)


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, SLOW_HEART)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.served() as client:
        yield client


async def begin(stage: ApiStage, client: httpx.AsyncClient) -> tuple[str, str]:
    """Start a turn that waits before its end; return the paths of session and run."""
    session = await open_session(client)
    stage.turns.may_end.clear()
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"})
    await stage.turns.has_begun.wait()
    return session, accepted.headers["location"]


def ids_and_types(text: str) -> list[tuple[str, str]]:
    lines = text.splitlines()
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    types = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    return list(zip(ids, types, strict=True))


async def test_a_reader_of_a_stand_in_end_is_sent_away_when_it_comes_back(
    stage: ApiStage, client: httpx.AsyncClient, database_url: str
) -> None:
    _, run = await begin(stage, client)
    await stage.turns.settle()
    await run_sql(database_url, "delete from run_events")

    for last in ("0", "2", "3", "77"):
        first = await client.get(f"{run}/events", headers={"Last-Event-ID": last})
        told = ids_and_types(first.text)
        again = await client.get(f"{run}/events", headers={"Last-Event-ID": told[-1][0]})

        assert [kind for _, kind in told][-2:] == ["reset", "run.completed"]
        assert (again.status_code, again.text) == (204, "")


async def test_the_id_of_a_stand_in_does_not_end_a_run_that_goes_on(stage: ApiStage, client: httpx.AsyncClient) -> None:
    _, run = await begin(stage, client)
    text = ""

    async with client.stream("GET", f"{run}/events", headers={"Last-Event-ID": "999999999"}) as response:
        async for chunk in response.aiter_text():
            text += chunk
            stage.turns.may_end.set()

    assert [kind for _, kind in ids_and_types(text)] == [
        "reset",
        "run.started",
        "message.delta",
        "run.completed",
    ]


async def test_readers_of_an_erased_session_are_let_go_at_once(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session, run = await begin(stage, client)

    async def read_on() -> None:
        async with client.stream("GET", f"{run}/events") as response:
            async for _ in response.aiter_text():
                await client.delete(session)

    async with asyncio.timeout(3):
        with pytest.raises(httpx.RemoteProtocolError):
            await read_on()

    stage.turns.may_end.set()
    await asyncio.gather(*stage.turns.tasks, return_exceptions=True)
