"""Nobody waits for ever where no worker is, and nobody is sent away who only waits for an earlier turn."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import httpx
import pytest
from structlog.testing import capture_logs

from fakes.api_stage import LOCAL, ApiStage, open_session, set_stage
from fakes.conversations import claim_next, open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import BACKENDS, run_sql
from fakes.scripted_turns import CLAIMER
from fakes.waiting import HANG_SECONDS, until_found
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database, DatabaseConfig
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import DatabaseFull, DatabaseUnavailable, NoWorkerAvailable
from throughline.domain.message import Source, ToolCall
from throughline.domain.run import Outcome, Run, RunInput, RunStatus, Submission
from throughline.domain.tool import AwaitedCall, NewWait, WaitKind
from throughline.http.auth import LOCAL_USER
from throughline.http.services import ApiConfig
from throughline.turn.follow_run import Following, follow_while_worked_on

STREAM = {"Accept": "text/event-stream"}
ASYNC = {"Prefer": "respond-async"}
IMPATIENT = ApiConfig(version="0.0.0", is_local_mode=True, heartbeat_seconds=0.05, no_worker_timeout_seconds=0.3)
PATIENT = replace(IMPATIENT, no_worker_timeout_seconds=HANG_SECONDS)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
HEARTBEATS = 12
"""More than fit into the time a request waits for a worker."""


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, IMPATIENT)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.served() as client:
        yield client
        await stage.turns.settle()


async def play_next(stage: ApiStage) -> None:
    claimed = await claim_next(stage.database.runs, CLAIMER)
    assert claimed is not None
    await stage.turns.play(claimed)


async def stay_at_work(stage: ApiStage) -> None:
    """Hold a run of somebody else's: however long the pause between two turns is, a worker is at work."""
    await (await open_conversation(stage.database)).start()


@pytest.mark.parametrize("accept", [STREAM, {}])
async def test_without_a_worker_the_wait_ends_in_every_mode(
    stage: ApiStage, client: httpx.AsyncClient, accept: dict[str, str]
) -> None:
    session = await open_session(client)
    stage.turns.has_worker = False

    async with asyncio.timeout(HANG_SECONDS):
        response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=accept)

    assert response.status_code == 503
    assert response.json()["type"] == "/problems/no_worker_available"
    assert int(response.headers["retry-after"]) >= 1
    run = await client.get(f"/v1/runs/{response.json()['run_id']}")
    assert run.json()["status"] == "queued"


async def begun_by_a_worker_that_died(stage: ApiStage, client: httpx.AsyncClient) -> str:
    """Return the path of a run that still says `running`."""
    session = await open_session(client)
    stage.turns.has_worker = False
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers=ASYNC)
    assert await claim_next(stage.database.runs, replace(CLAIMER, lease_seconds=0))
    return str(accepted.headers["location"])


async def test_a_wait_behind_a_turn_whose_worker_died_ends(stage: ApiStage, client: httpx.AsyncClient) -> None:
    run = await begun_by_a_worker_that_died(stage, client)
    session = (await client.get(run)).json()["session_id"]

    async with asyncio.timeout(HANG_SECONDS):
        response = await client.post(f"/v1/sessions/{session}/messages", json={"content": "and?"})

    assert response.status_code == 503


async def test_a_stream_of_a_turn_whose_only_worker_died_is_refused(stage: ApiStage, client: httpx.AsyncClient) -> None:
    run = await begun_by_a_worker_that_died(stage, client)

    async with asyncio.timeout(HANG_SECONDS):
        response = await client.get(f"{run}/events")

    assert response.status_code == 503
    assert response.json()["type"] == "/problems/no_worker_available"


@pytest.mark.parametrize("what", ["end", "events"])
async def test_a_wait_for_a_turn_whose_only_worker_died_ends(database: Database, what: str) -> None:
    conversation = await open_conversation(database)
    left = await conversation.start(claimer=replace(CLAIMER, lease_seconds=0))
    following = Following(database.followed_runs, time.monotonic, heartbeat_seconds=0.05)

    followed = following.end(left.run) if what == "end" else following.events(left.run)
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(NoWorkerAvailable):
            async for _ in follow_while_worked_on(following, followed, timeout_seconds=0.2):
                pass


async def test_a_wait_for_a_turn_whose_lease_is_renewed_goes_on(database: Database) -> None:
    conversation = await open_conversation(database)
    held = await conversation.start()
    following = Following(database.followed_runs, time.monotonic, heartbeat_seconds=0.05)
    heartbeats = 0

    async for _ in follow_while_worked_on(following, following.end(held.run), timeout_seconds=0.2):
        heartbeats += 1
        if heartbeats == HEARTBEATS:
            await conversation.end(held.lease)

    assert heartbeats > HEARTBEATS


async def test_a_run_behind_one_that_nobody_takes_is_not_waited_for(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.has_worker = False
    await client.post(f"{session}/messages", json={"content": "first"}, headers=ASYNC)

    response = await client.post(f"{session}/messages", json={"content": "second"})

    assert response.status_code == 503


async def test_a_stream_behind_a_running_turn_lives_on_heartbeats_until_its_own_turn(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    await client.post(f"{session}/messages", json={"content": "first"}, headers=ASYNC)
    text = ""

    async with client.stream("POST", f"{session}/messages", json={"content": "second"}, headers=STREAM) as response:
        async for chunk in response.aiter_text():
            text += chunk
            if text.count(": heartbeat") >= HEARTBEATS and not stage.turns.may_end.is_set():
                await stay_at_work(stage)
                await stage.turns.settle()
                await play_next(stage)

    assert response.status_code == 200
    assert "event: run.completed" in text


async def test_a_waiting_request_behind_a_running_turn_keeps_waiting(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    await client.post(f"{session}/messages", json={"content": "first"}, headers=ASYNC)
    waiting = asyncio.create_task(client.post(f"{session}/messages", json={"content": "second"}))
    for _ in range(HEARTBEATS):
        await asyncio.sleep(IMPATIENT.heartbeat_seconds)

    await stay_at_work(stage)
    await stage.turns.settle()
    await play_next(stage)

    assert (await waiting).status_code == 200


async def test_a_stream_behind_runs_of_others_lives_on_heartbeats_while_a_worker_works(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    stage.turns.may_end.clear()
    await client.post(f"{await open_session(client)}/messages", json={"content": "theirs"}, headers=ASYNC)
    await stage.turns.has_begun.wait()
    stage.turns.has_worker = False  # all its slots are taken
    text = ""

    path = f"{await open_session(client)}/messages"
    async with client.stream("POST", path, json={"content": "mine"}, headers=STREAM) as response:
        async for chunk in response.aiter_text():
            text += chunk
            if text.count(": heartbeat") >= HEARTBEATS and not stage.turns.may_end.is_set():
                await stay_at_work(stage)
                stage.turns.may_end.set()
                await play_next(stage)

    assert response.status_code == 200
    assert "event: run.completed" in text


async def test_a_request_behind_runs_of_others_keeps_waiting_while_a_worker_works(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    stage.turns.may_end.clear()
    await client.post(f"{await open_session(client)}/messages", json={"content": "theirs"}, headers=ASYNC)
    await stage.turns.has_begun.wait()
    stage.turns.has_worker = False
    path = f"{await open_session(client)}/messages"
    waiting = asyncio.create_task(client.post(path, json={"content": "mine"}))
    for _ in range(HEARTBEATS):
        await asyncio.sleep(IMPATIENT.heartbeat_seconds)

    await stay_at_work(stage)
    stage.turns.may_end.set()
    await play_next(stage)

    assert (await waiting).status_code == 200


async def test_a_stream_whose_turn_has_come_is_cut_where_no_worker_is(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    await client.post(f"{session}/messages", json={"content": "first"}, headers=ASYNC)

    async def read_on() -> None:
        async with client.stream("POST", f"{session}/messages", json={"content": "second"}, headers=STREAM) as response:
            async for _ in response.aiter_text():
                stage.turns.may_end.set()

    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(httpx.RemoteProtocolError):
            await read_on()


@pytest.mark.parametrize("last_seen", ["0", "-1", "7"])
async def test_a_reader_of_a_run_that_nobody_takes_is_told_so(
    stage: ApiStage, client: httpx.AsyncClient, last_seen: str
) -> None:
    session = await open_session(client)
    stage.turns.has_worker = False
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers=ASYNC)

    async with asyncio.timeout(HANG_SECONDS):
        path = f"{accepted.headers['location']}/events"
        response = await client.get(path, headers={"Last-Event-ID": last_seen})

    assert response.status_code == 503
    assert response.json()["type"] == "/problems/no_worker_available"


async def test_a_reader_who_waits_for_a_worker_gets_the_whole_stream_once_one_comes(database: Database) -> None:
    stage = set_stage(database, PATIENT)
    stage.turns.has_worker = False
    async with stage.served() as client:
        session = await open_session(client)
        accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers=ASYNC)
        reading = asyncio.create_task(client.get(f"{accepted.headers['location']}/events"))
        await asyncio.sleep(0)

        await play_next(stage)
        text = (await reading).text

    assert [line for line in text.splitlines() if line.startswith("event: ")] == [
        "event: run.started",
        "event: message.delta",
        "event: message.completed",
        "event: run.completed",
    ]


async def begin_to_wait(stage: ApiStage, session: str) -> Run:
    """Have a turn of the session wait for the result of a client's tool."""
    owner_id, session_id = (
        await stage.database.users.get_or_create(LOCAL_USER),
        SessionId(UUID(session.rsplit("/", maxsplit=1)[-1])),
    )
    submission = Submission(
        owner_id,
        session_id,
        RunInput("rain?"),
        Source.API,
        fingerprint="rain?",
    )
    submitted = await stage.database.runs.submit(submission, CLAIMER)
    assert submitted.claimed is not None
    calls = (AwaitedCall(ToolCall("call_1", "weather", "{}"), WaitKind.TOOL_RESULT),)
    wait = NewWait(calls, stage.database.messages.new_message_id(), LATER)
    outcome = Outcome(RunStatus.WAITING, wait=wait)
    return await stage.database.runs.finish(submitted.claimed.lease, outcome, (), 1)


async def test_a_message_behind_a_waiting_turn_is_told_what_the_session_waits_for(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    waiting = await begin_to_wait(stage, session)

    response = await client.post(f"{session}/messages", json={"content": "and?"})

    told = response.json()
    assert (response.status_code, told["type"]) == (409, "/problems/session_waiting")
    assert told["waiting_run_id"] == str(waiting.id)
    assert "call_1 (tool_result: weather)" in told["detail"]
    assert (await client.get(f"/v1/runs/{told['run_id']}")).json()["status"] == "queued"


async def test_a_stream_behind_a_waiting_turn_stays_open_until_its_message_is_answered(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session = await open_session(client)
    waiting = await begin_to_wait(stage, session)
    lines: list[str] = []

    async with client.stream("POST", f"{session}/messages", json={"content": "and?"}, headers=STREAM) as response:
        async for line in response.aiter_lines():
            lines.append(line)
            if line == ": heartbeat" and lines.count(line) == HEARTBEATS:
                await client.post(f"/v1/runs/{waiting.id}/cancel")
                await play_next(stage)

    assert response.status_code == 200
    assert "event: run.completed" in lines


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
def stage_away(narrow: Database) -> ApiStage:
    return set_stage(narrow, LOCAL)


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/event-stream"}, {"Prefer": "respond-async"}])
async def test_with_all_connections_in_use_a_message_is_refused_for_now_and_taken_later(
    stage_away: ApiStage, narrow: Database, database_url: str, headers: dict[str, str]
) -> None:
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select 1"))
        is_held.set()
        await may_go.wait()

    async with stage_away.client() as client:
        session = await open_session(client)
        holding = asyncio.create_task(narrow._transactions.run(hold))  # noqa: SLF001  # nobody else holds one so long
        await is_held.wait()
        headers = {**headers, "Idempotency-Key": "once"}
        with capture_logs() as logs:
            refused = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)
        may_go.set()
        await holding
        taken = await client.post(f"{session}/messages", json={"content": "hi"}, headers=headers)
        await stage_away.turns.settle()

    assert refused.status_code == 503
    assert refused.json()["type"] == "/problems/database_unavailable"
    assert int(refused.headers["retry-after"]) >= 1
    assert REFUSED in [{name: entry.get(name) for name in REFUSED} for entry in logs]
    assert taken.is_success
    assert await run_sql(database_url, "select status from runs") == [("succeeded",)]


async def test_dropped_connections_are_not_noticed_by_the_sender(stage_away: ApiStage, database_url: str) -> None:
    drop = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline'"
    async with stage_away.client() as client:
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
