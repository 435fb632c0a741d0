"""How streams end that have nothing stored to end with: events that are gone, sessions that were erased."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from fakes.api_stage import ApiStage, open_session, set_stage
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.http.server import HttpServer, Shutdown, TcpAddress, bind_tcp, bound_url
from throughline.http.services import ApiConfig

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


async def read_and_erase(client: httpx.AsyncClient, session: str, run: str) -> None:
    async with client.stream("GET", f"{run}/events") as response:
        async for _ in response.aiter_text():
            await client.delete(session)


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

        assert [kind for _, kind in told][-3:] == ["reset", "message.completed", "run.completed"]
        assert (again.status_code, again.text) == (204, "")


async def test_a_reader_cut_off_within_a_stand_in_gets_all_of_it_again(
    stage: ApiStage, client: httpx.AsyncClient, database_url: str
) -> None:
    _, run = await begin(stage, client)
    await stage.turns.settle()
    await run_sql(database_url, "delete from run_events")
    first = ids_and_types((await client.get(f"{run}/events")).text)

    again = await client.get(f"{run}/events", headers={"Last-Event-ID": first[0][0]})

    assert [kind for _, kind in ids_and_types(again.text)] == ["reset", *(kind for _, kind in first)]


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
        "message.completed",
        "run.completed",
    ]


async def test_readers_of_an_erased_session_are_let_go_at_once(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session, run = await begin(stage, client)

    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(httpx.RemoteProtocolError):
            await read_and_erase(client, session, run)

    stage.turns.may_end.set()
    await asyncio.gather(*stage.turns.tasks, return_exceptions=True)


@asynccontextmanager
async def served_for_good(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    """Serve as `throughline serve` does."""

    async def nothing() -> None:
        """Nothing runs that has to end first."""

    listener = bind_tcp(TcpAddress("127.0.0.1", 0))
    server = HttpServer(stage.app, listener, Shutdown(nothing, grace_seconds=1))
    serving = asyncio.create_task(server.run_until_stopped())
    try:
        async with httpx.AsyncClient(base_url=bound_url(listener)) as client:
            yield client
    finally:
        server.stop()
        await serving


async def test_a_stream_that_is_cut_on_purpose_is_no_error_in_the_log(
    stage: ApiStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="uvicorn.error")
    async with served_for_good(stage) as client:
        session, run = await begin(stage, client)
        with pytest.raises(httpx.RemoteProtocolError):
            await read_and_erase(client, session, run)
        logging.getLogger("uvicorn.error").error("something else")
        stage.turns.may_end.set()
        await asyncio.gather(*stage.turns.tasks, return_exceptions=True)

    assert [record.message for record in caplog.records if record.name == "uvicorn.error"] == ["something else"]
