"""Answers of a replica: which routes may have them, and how they tell their age."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import ApiStage, open_session, set_stage
from fakes.conversations import open_conversation
from fakes.pretended_standby import PretendedStandby
from fakes.raw_sql import run_sql
from fakes.replicas import ReplicaProcess
from throughline.db.search.index_history import LIVE_MESSAGES
from throughline.domain.errors import NotFound
from throughline.http.app import CORS_EXPOSED
from throughline.http.call import session_id_of
from throughline.turn.recall.history_search import LONG_SESSION_MESSAGES
from throughline.wire.data_age import DATA_AS_OF

pytestmark = [
    pytest.mark.unpooled("the database's search path is that of the pooler's connections"),
    pytest.mark.calm("a conflict leaves the answer to the primary"),
]


@pytest.fixture
def stage(process: ReplicaProcess) -> ApiStage:
    return set_stage(process.database)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client


async def say(client: httpx.AsyncClient, session: str, text: str) -> None:
    assert (await client.post(f"{session}/messages", json={"content": text})).status_code == 200


def contents(export: httpx.Response) -> list[str]:
    lines = [json.loads(line) for line in export.text.splitlines()]
    return [line["content"] for line in lines if line["type"] == "message" and line["role"] == "user"]


async def test_exports_and_usage_come_from_the_replica_and_tell_their_age(
    client: httpx.AsyncClient, process: ReplicaProcess
) -> None:
    session = await open_session(client)
    await say(client, session, "Hello")

    export = await client.get(f"{session}/export")
    usage = await client.get("/v1/usage", params={"group_by": "none"})

    assert contents(export) == ["Hello"]
    assert usage.json()["data"] == []
    for answer in (export, usage):
        assert datetime.fromisoformat(answer.headers[DATA_AS_OF]).tzinfo is not None
    assert process.reads == {"answers": 3}
    assert DATA_AS_OF in CORS_EXPOSED


async def test_an_unknown_age_is_told_as_such(client: httpx.AsyncClient, standby: PretendedStandby) -> None:
    await open_session(client)
    await standby.remove_functions()

    assert (await client.get("/v1/usage")).headers[DATA_AS_OF] == "unknown"


async def test_everything_else_goes_to_the_primary(client: httpx.AsyncClient, process: ReplicaProcess) -> None:
    session = await open_session(client)
    await say(client, session, "Hello")
    paths = [session, f"{session}/messages", f"{session}/context", "/v1/sessions", "/v1/runs", "/v1/memories"]

    answers = [await client.get(path) for path in paths]

    assert [answer.status_code for answer in answers] == [200] * len(paths)
    assert not any(DATA_AS_OF in answer.headers for answer in answers)
    assert process.reads == {}


async def test_nobody_gets_an_export_of_anothers_session(stage: ApiStage, process: ReplicaProcess) -> None:
    async with stage.client() as client:
        session = await open_session(client)
    stranger = await process.database.users.get_or_create("mallory")

    session_id = session_id_of(session.rpartition("/")[2])

    with pytest.raises(NotFound):
        await process.begin().run(lambda each: each.sessions.get(stranger, session_id))
    assert process.reads == {"missing": 1}


async def test_a_search_of_all_sessions_comes_from_the_replica(
    client: httpx.AsyncClient, process: ReplicaProcess
) -> None:
    session = await open_session(client)
    await say(client, session, "The gateway listens on port 8443.")

    found = await client.get("/v1/search", params={"q": "gateway"})

    assert found.json()["data"][0]["snippet"] == "The gateway listens on port 8443."
    assert DATA_AS_OF in found.headers
    assert process.reads == {"answers": 1}


@pytest.mark.parametrize("is_long", [False, True])
async def test_of_one_session_only_a_long_one_is_searched_there(
    client: httpx.AsyncClient, process: ReplicaProcess, database_url: str, *, is_long: bool
) -> None:
    session = await open_session(client)
    await say(client, session, "The gateway listens on port 8443.")
    await process.database.history.index_session(session_id_of(session.rpartition("/")[2]))
    if is_long:
        await run_sql(database_url, f"update sessions set message_count = {LONG_SESSION_MESSAGES}")
        await run_sql(database_url, f"update search_blocks set through_position = {LONG_SESSION_MESSAGES}")

    found = await client.get(f"{session}/search", params={"q": "gateway"})

    assert found.json()["data"][0]["snippet"] == "The gateway listens on port 8443."
    assert (DATA_AS_OF in found.headers) == is_long


async def test_what_has_to_be_indexed_first_is_searched_at_the_primary(
    client: httpx.AsyncClient, process: ReplicaProcess
) -> None:
    conversation = await open_conversation(process.database, "local")
    for _ in range(2):
        await conversation.say(*(f"The gateway listens on port {number}." for number in range(LIVE_MESSAGES)))

    found = await client.get("/v1/search", params={"q": "gateway"})

    assert found.json()["data"]
    assert DATA_AS_OF not in found.headers
    assert process.reads == {"unindexed": 1}


async def test_a_search_that_is_refused_is_refused_as_before(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    missing = f"/v1/sessions/{UUID(int=7)}/search"

    answers = [
        await client.get(path, params={"q": words})
        for path, words in [("/v1/search", "before:never"), (missing, "gateway"), (f"{session}/search", "")]
    ]

    assert [answer.status_code for answer in answers] == [422, 404, 422]
