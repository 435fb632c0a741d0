"""A database that cannot be asked: a 503 that says when to come back, nothing half done, and then all is well."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from structlog.testing import capture_logs

from fakes.api_stage import LOCAL, ApiStage, open_session, set_stage
from fakes.conversations import open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import BACKENDS, run_sql
from fakes.waiting import until_found
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database, DatabaseConfig
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseFull, DatabaseUnavailable

REFUSED = {
    "event": "request refused temporarily",
    "cause": "All database connections of this process are in use. Try again in a moment.",
    "route": "POST /v1/sessions/{session_id}/messages",
}
NO_ROOM = """
    create function meet_full_disk() returns trigger as $$ begin
        raise exception 'no room' using errcode = 'disk_full';
    end $$ language plpgsql
"""


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[Database]:
    """A database of which this process may use one connection."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1, pool_timeout_seconds=2.0))
    yield opened
    await opened.close()


@pytest.fixture
def stage(narrow: Database) -> ApiStage:
    return set_stage(narrow, LOCAL)


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/event-stream"}, {"Prefer": "respond-async"}])
async def test_with_all_connections_in_use_a_message_is_refused_for_now_and_taken_later(
    stage: ApiStage, narrow: Database, database_url: str, headers: dict[str, str]
) -> None:
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select 1"))
        is_held.set()
        await may_go.wait()

    async with stage.client() as client:
        session = await open_session(client)
        holding = asyncio.create_task(narrow._transactions.run(hold))  # noqa: SLF001  # nobody else holds one so long
        await is_held.wait()
        headers = {**headers, "Idempotency-Key": "once"}
        with capture_logs() as logs:
            refused = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)
        may_go.set()
        await holding
        taken = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)
        await stage.turns.settle()

    assert refused.status_code == 503
    assert refused.json()["type"] == "/problems/database_unavailable"
    assert int(refused.headers["retry-after"]) >= 1
    assert REFUSED in [{name: entry.get(name) for name in REFUSED} for entry in logs]
    assert taken.is_success
    assert await run_sql(database_url, "select status from runs") == [("succeeded",)]


async def test_dropped_connections_are_not_noticed_by_whoever_sends(stage: ApiStage, database_url: str) -> None:
    drop = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline'"
    async with stage.client() as client:
        session = await open_session(client)
        statuses: list[int] = []
        for number in range(3):
            await run_sql(database_url, drop)
            sent: httpx.Response = await client.post(f"{session}/messages", json={"content": f"message {number}"})
            statuses.append(sent.status_code)

    assert statuses == [200, 200, 200]
    assert await run_sql(database_url, "select count(*) from messages") == [(6,)]


@pytest.mark.slow
async def test_a_server_without_room_is_not_ready_until_nobody_met_with_that_for_a_while(
    narrow: Database, database_url: str
) -> None:
    await run_sql(database_url, NO_ROOM)
    await run_sql(database_url, "create trigger full_disk before insert on users execute function meet_full_disk()")

    with pytest.raises(DatabaseFull):
        await open_conversation(narrow)
    with pytest.raises(DatabaseUnavailable):
        await narrow.check_ready()

    async def is_ready() -> bool:
        with contextlib.suppress(DatabaseUnavailable):
            await narrow.check_ready()
            return True
        return False

    await until_found(is_ready)
