"""Sending a message: waiting for the answer, leaving it to come, sending it again, and the ways a turn can fail."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import LOCAL, ApiStage, open_session, set_stage
from fakes.pooler import urls_of
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import SummaryLimitReached
from throughline.domain.run import Caps, RunError
from throughline.http.headers import prefers_stream
from throughline.http.problem_documents import error_problem
from throughline.http.services import ApiConfig

KEY = {"Idempotency-Key": "k-1"}
ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, LOCAL)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client
    await stage.turns.settle()


async def test_waiting_returns_run_message_and_context(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", json={"content": "hi", "metadata": {"a": [1, None]}})

    body = response.json()
    assert response.status_code == 200
    assert set(body) == {"run", "message", "context"}
    assert body["run"]["status"] == "succeeded"
    assert body["message"]["content"] == "Hello back."
    assert response.headers["content-location"] == f"/v1/runs/{body['run']['id']}"
    history = (await client.get(f"{session}/messages")).json()["data"]
    assert [message["content"] for message in history] == ["hi", "Hello back."]
    assert history[0]["metadata"] == {"a": [1, None]}


async def test_blocks_are_stored_as_sent(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    blocks = [
        {"type": "text", "text": "look:"},
        {"type": "image", "url": "data:image/png;base64,AAAA", "detail": "low"},
    ]

    await client.post(f"{session}/messages", json={"content": blocks})

    assert (await client.get(f"{session}/messages")).json()["data"][0]["content"] == blocks


async def test_respond_async_leaves_the_answer_to_come(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=ASYNC)

    assert response.status_code == 202
    run = await client.get(response.headers["location"])
    assert run.json()["id"] == response.json()["run"]["id"]


async def test_the_same_key_gets_an_equal_answer_and_one_turn(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    first = await client.post(f"{session}/messages", json={"content": "hi", "metadata": {"a": 1, "b": 2}}, headers=KEY)

    again = await client.post(
        f"{session}/messages",
        content=b'{"metadata": {"b": 2, "a": 1}, "on_busy": "enqueue", "content": "hi"}',
        headers={**KEY, "Content-Type": "application/json"},
    )

    assert again.status_code == 200
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert len((await client.get(f"{session}/messages")).json()["data"]) == 2


async def test_the_same_key_joins_a_turn_that_still_runs(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={**KEY, **ASYNC})
    joined = asyncio.create_task(client.post(f"{session}/messages", json={"content": "hi"}, headers=KEY))

    stage.turns.may_end.set()

    assert (await joined).json()["run"]["id"] == accepted.json()["run"]["id"]


async def test_a_key_used_for_another_body_is_refused_in_every_mode(
    client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    session = await open_session(client)
    await client.post(f"{session}/messages", json={"content": "hi"}, headers=KEY)

    for mode in ({}, ASYNC, {"Accept": "text/event-stream"}):
        with subtests.test(str(mode)):
            response = await client.post(f"{session}/messages", json={"content": "other"}, headers={**KEY, **mode})
            assert response.status_code == 409
            assert response.json()["type"] == "/problems/idempotency_key_reused"


async def test_a_key_used_in_another_session_is_refused(client: httpx.AsyncClient) -> None:
    first, second = await open_session(client), await open_session(client)
    await client.post(f"{first}/messages", json={"content": "hi"}, headers=KEY)

    response = await client.post(f"{second}/messages", json={"content": "hi"}, headers=KEY)

    assert response.status_code == 409


async def test_a_session_is_opened_once_per_key(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/sessions", json={"agent": "assistant"}, headers=KEY)
    again = await client.post("/v1/sessions", json={"agent": "assistant"}, headers=KEY)
    other = await client.post("/v1/sessions", json={"agent": "assistant", "title": "x"}, headers=KEY)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 409)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


FAILURES = {
    "model_rejected": 502,
    "model_unavailable": 503,
    "model_rate_limited": 503,
    "model_timeout": 504,
    "turn_timeout": 504,
    "internal_error": 500,
    "a_code_of_the_future": 500,
}


async def test_a_failed_turn_is_a_problem_of_its_own_type(
    stage: ApiStage, client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    session = await open_session(client)
    for code, status in FAILURES.items():
        with subtests.test(code):
            stage.turns.error = RunError(code, "What happened.")
            request = client.build_request(
                "POST", f"{session}/messages", json={"content": "hi"}, headers={"Idempotency-Key": code}
            )

            response, again = await client.send(request), await client.send(request)

            body = response.json()
            assert response.status_code == status
            assert body["type"] == f"/problems/{code}"
            assert body["detail"] == "What happened."
            assert body["run_id"] == body["run"]["id"]
            assert again.json() == body


async def test_a_cancelled_run_is_a_conflict_that_names_it(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.has_worker = False
    accepted = await client.post(f"{session}/messages", json={"content": "hi"}, headers={**KEY, **ASYNC})
    cancelled = await client.post(f"/v1/runs/{accepted.json()['run']['id']}/cancel")

    response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=KEY)

    assert cancelled.json()["status"] == "cancelled"
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/run_cancelled"
    assert response.json()["run_id"] == accepted.json()["run"]["id"]


async def test_a_busy_session_can_refuse(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    running = await client.post(f"{session}/messages", json={"content": "hi"}, headers=ASYNC)

    response = await client.post(f"{session}/messages", json={"content": "now", "on_busy": "reject"})

    assert response.status_code == 409
    assert response.json()["type"] == "/problems/session_busy"
    assert response.json()["run_id"] == running.json()["run"]["id"]


async def test_a_client_that_stops_waiting_does_not_stop_the_turn(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    waiting = asyncio.create_task(client.post(f"{session}/messages", json={"content": "hi"}))
    await stage.turns.has_begun.wait()

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stage.turns.settle()

    history = (await client.get(f"{session}/messages")).json()["data"]
    assert [message["role"] for message in history] == ["user", "assistant"]


async def test_a_waiting_request_is_told_when_the_service_stops(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    stage.turns.may_end.clear()
    stage.services.shutting_down.set()

    response = await client.post(f"{session}/messages", json={"content": "hi"})

    assert response.status_code == 503
    assert response.json()["type"] == "/problems/service_stopping"


async def test_a_client_may_say_which_interface_it_is(client: httpx.AsyncClient) -> None:
    said = [{"X-Client": "web"}, {"X-Client": "cli"}, {"X-Client": "slack"}, {}]

    answers = [await client.post("/v1/sessions", json={"agent": "assistant"}, headers=headers) for headers in said]

    assert [answer.json()["source"] for answer in answers] == ["web", "cli", "api", "api"]


@pytest.mark.parametrize(
    "accept",
    [
        "text/event-stream",
        "TEXT/Event-Stream ; q=0.5",
        "text/*",
        "text/event-stream, */*",
        "text/event-stream, application/json;q=0.9",
        "application/json;q=0.2, text/event-stream;q=0.3",
        "text/event-stream;charset=utf-8",
        "application/json;q=0, */*",
    ],
)
def test_a_stream_is_preferred(accept: str) -> None:
    assert prefers_stream([accept])


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "text/event-stream;q=0",
        "text/event-stream;q=0.0, */*",
        "text/event-stream;q=nonsense",
        "text/event-stream;q=nan",
        "application/json;x=text/event-stream",
        "text/event-streamer",
        "text/html, */*;q=0.8",
        ";q=1,,;",
    ],
)
def test_json_is_served(accept: str) -> None:
    assert not prefers_stream([accept])


def test_several_headers_are_read_as_one() -> None:
    assert not prefers_stream(["text/event-stream;q=0.5", "application/json"])
    assert prefers_stream(["text/event-stream", "application/json;q=0.5"])
    assert not prefers_stream([])


ORIGIN = "https://app.example"
PREFLIGHT = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}


@pytest.mark.parametrize("listed", [(), ("https://other.example",)])
async def test_a_preflight_of_an_origin_that_is_not_listed_says_which_setting_to_set(
    database: Database, listed: tuple[str, ...]
) -> None:
    config = ApiConfig(version="0", cors_origins=listed)
    async with set_stage(database, config).client() as client:
        response = await client.options("/v1/sessions", headers=PREFLIGHT)
        sandboxed = await client.options("/v1/sessions", headers={**PREFLIGHT, "Origin": "null"})
        plain = await client.options("/v1/sessions", headers={"Origin": ORIGIN})

    assert (response.status_code, response.json()["type"]) == (403, "/problems/origin_refused")
    assert f"CORS_ORIGINS={ORIGIN}" in response.json()["detail"]
    assert "access-control-allow-origin" not in response.headers
    assert (sandboxed.status_code, "has no origin" in sandboxed.json()["detail"]) == (403, True)
    assert plain.status_code == 405


@pytest.mark.parametrize("listed", ["*", ORIGIN])
async def test_a_preflight_of_a_listed_origin_is_answered(database: Database, listed: str) -> None:
    async with set_stage(database, ApiConfig(version="0", cors_origins=(listed,))).client() as client:
        response = await client.options("/v1/sessions", headers=PREFLIGHT)

    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, listed)


@pytest.mark.parametrize(
    ("caps", "code", "cap"),
    [
        (Caps(queued_per_session=2), "queue_full", "max_queued_per_session"),
        (Caps(queued_per_owner=2), "owner_queue_full", "max_queued_per_owner"),
    ],
    ids=["of a session", "of a user"],
)
async def test_one_message_too_many_is_told_which_cap_it_met(
    database_url: str, caps: Caps, code: str, cap: str
) -> None:
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    stage = set_stage(database, LOCAL)
    stage.turns.has_worker = False

    async with stage.served() as client:
        path = f"{await open_session(client)}/messages"
        sent = [await client.post(path, json={"content": "hi"}, headers=ASYNC) for _ in range(3)]
    await database.close()

    refused = sent[-1]
    assert [response.status_code for response in sent] == [202, 202, 429]
    assert (refused.json()["type"], refused.json()["cap"], refused.json()["limit"]) == (f"/problems/{code}", cap, 2)
    assert int(refused.headers["retry-after"]) >= 1
    assert cap.upper() in refused.json()["detail"]


def test_one_summary_on_demand_too_many_is_told_as_the_users_own_limit() -> None:
    refused = error_problem(SummaryLimitReached("You have as many as one user may have (4)."))

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
