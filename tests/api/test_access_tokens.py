"""Access tokens: made by a key for one user, and good for some sessions only, on few routes, for a short time."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
import structlog

from api.test_connection_limits import serving_app
from api.test_isolation import OPEN_TO_ALL, routes_of
from fakes.access_tokens import BODIES, SESSION, UNKNOWN, Owned, TokenPage, open_page, owned_by
from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.http.protocol import ConnectionLimits

OF_A_SESSION = {
    ("GET", SESSION),
    ("PATCH", SESSION),
    ("DELETE", SESSION),
    ("GET", f"{SESSION}/messages"),
    ("POST", f"{SESSION}/messages"),
    ("GET", f"{SESSION}/runs"),
    ("GET", f"{SESSION}/search"),
    ("GET", f"{SESSION}/export"),
    ("GET", f"{SESSION}/context"),
    ("POST", f"{SESSION}/context/preview"),
    ("PUT", f"{SESSION}/messages/{{message_id}}/pin"),
    ("DELETE", f"{SESSION}/messages/{{message_id}}/pin"),
    ("POST", f"{SESSION}/messages/{{message_id}}/redact"),
    ("POST", f"{SESSION}/summarize"),
    ("POST", f"{SESSION}/summarize/estimate"),
    ("GET", f"{SESSION}/summaries"),
    ("GET", f"{SESSION}/summaries/{{summary_id}}"),
    ("POST", f"{SESSION}/summaries/{{summary_id}}/restore"),
    ("GET", "/v1/runs/{run_id}"),
    ("GET", "/v1/runs/{run_id}/events"),
    ("POST", "/v1/runs/{run_id}/cancel"),
    ("POST", "/v1/runs/{run_id}/resume"),
}
OF_THE_LIST = {("GET", "/v1/sessions"), ("POST", "/v1/sessions"), ("POST", f"{SESSION}/branch")}


@pytest.fixture
async def page(database: Database) -> AsyncIterator[TokenPage]:
    async with open_page(database) as page:
        yield page


async def test_a_token_is_shown_once_with_its_end_and_stored_as_a_hash(page: TokenPage, database_url: str) -> None:
    response = await page.ask({"session_ids": [page.first.session_id], "expires_in": 120})

    made = response.json()
    assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
    assert (made["scopes"], made["session_ids"]) == (["read", "write"], [page.first.session_id])
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=60) < left < timedelta(seconds=180)
    assert made["token"].startswith("tlt_")
    assert made["token"] not in str(await run_sql(database_url, "select access_tokens::text from access_tokens"))


async def test_every_route_is_served_to_tokens_by_one_rule(page: TokenPage, subtests: pytest.Subtests) -> None:
    limited, unlimited = await page.token(page.first), await page.token()
    served = set()
    for method, template in sorted(set(routes_of(page.stage)) - OPEN_TO_ALL):
        body = BODIES.get((method, template))
        path = page.second.path(template)
        with subtests.test(f"{method} {template}"):
            async with page.stage.client(key=limited) as client:
                other = await client.request(method, path, json=body)
                unknown = await client.request(method, Owned(UNKNOWN, UNKNOWN).path(template), json=body)
            async with page.stage.client(key=unlimited) as client:
                allowed = await client.request(method, Owned(UNKNOWN, UNKNOWN).path(template), json=body)
        if allowed.status_code != httpx.codes.FORBIDDEN:
            served.add((method, template))
        if (method, template) in OF_A_SESSION:
            assert (other.status_code, unknown.status_code) == (404, 404)
            assert other.text.replace(page.second.session_id, UNKNOWN).replace(page.second.run_id, UNKNOWN) == (
                unknown.text
            )
        else:
            assert other.status_code == 403
            assert other.json().get("type") == "/problems/not_allowed" or other.json()["error"]["code"] == "not_allowed"

    assert served == OF_A_SESSION | OF_THE_LIST
    assert (await page.get(f"/v1/sessions/{page.second.session_id}", page.key)).status_code == 200


async def test_a_token_reads_writes_and_follows_its_own_session(page: TokenPage) -> None:
    path = f"/v1/sessions/{page.first.session_id}"
    async with page.stage.client(key=await page.token(page.first)) as browser:
        read = await browser.get(f"{path}/messages")
        sent = await browser.post(f"{path}/messages", json={"content": "hi"})
        run = await browser.get(f"/v1/runs/{sent.json()['run']['id']}")
        events = await browser.get(f"/v1/runs/{sent.json()['run']['id']}/events")

    assert [reply.status_code for reply in (read, sent, run, events)] == [200] * 4
    assert (run.json()["author"], run.json()["session_id"]) == ("anna", page.first.session_id)
    assert "event: run.completed" in events.text


async def test_a_token_for_all_sessions_opens_and_lists_them_and_nothing_of_others(page: TokenPage) -> None:
    async with page.stage.client(key=await page.token()) as browser:
        made = (await open_session(browser)).rpartition("/")[2]
        listed = {session["id"] for session in (await browser.get("/v1/sessions")).json()["data"]}
    async with page.stage.client(key=await page.stage.key("mallory")) as mallory:
        foreign = await open_session(mallory)

    assert listed == {made, page.first.session_id, page.second.session_id}
    assert (await page.get(foreign, await page.token())).status_code == 404


async def test_a_token_has_only_scopes_of_its_key(page: TokenPage) -> None:
    reading = await page.token(page.first, scopes=["read"])
    read_key, no_key = await page.stage.key("anna", Scope.READ), await page.stage.key("anna", Scope.OPERATE)
    path = f"/v1/sessions/{page.first.session_id}/messages"
    async with page.stage.client(key=reading) as browser:
        read, sent = await browser.get(path), await browser.post(path, json={"content": "x"})

    wider = await page.ask({"scopes": ["read", "write"]}, key=read_key)
    default = await page.ask({}, key=read_key)
    none = await page.ask({}, key=no_key)

    assert (read.status_code, sent.status_code) == (200, 403)
    assert (wider.status_code, default.json()["scopes"], none.status_code) == (403, ["read"], 403)
    assert "lacks the scope `write`" in wider.json()["detail"]


async def test_a_back_end_makes_tokens_for_the_users_it_acts_for(page: TokenPage) -> None:
    backend = await page.stage.key("backend", Scope.READ, Scope.WRITE, Scope.ACT_AS)
    made = await page.ask({"session_ids": [page.first.session_id]}, key=backend, user="anna")
    refused = await page.ask({}, user="bert")
    token = made.json()["token"]

    path = f"/v1/sessions/{page.first.session_id}/messages"
    async with page.stage.client(key=token) as browser:
        sent = await browser.post(path, json={"content": "hi"}, headers={"Prefer": "respond-async"})
        acting = await browser.get(path, headers={"On-Behalf-Of": "bert"})

    assert (made.status_code, refused.status_code, acting.status_code) == (201, 403, 403)
    assert (sent.json()["run"]["author"], sent.status_code) == ("anna", 202)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"session_ids": []}, 422, "session_ids"),
        ({"session_ids": [UNKNOWN] * 101}, 422, "session_ids"),
        ({"session_ids": [7]}, 422, "session_ids.0"),
        ({"session_ids": [UNKNOWN]}, 404, None),
        ({"session_ids": ["no id\x00"]}, 404, None),
        ({"scopes": []}, 422, "scopes"),
        ({"scopes": ["operate"]}, 422, "scopes.0"),
        ({"expires_in": 59}, 422, "expires_in"),
        ({"expires_in": 86_401}, 422, "expires_in"),
        ({"expires_in": 900.5}, 422, "expires_in"),
        ({"user": "bert"}, 422, "user"),
    ],
)
async def test_an_unusable_request_for_a_token_is_refused(
    page: TokenPage, body: dict[str, object], status: int, field: str | None
) -> None:
    response = await page.ask(body)

    assert response.status_code == status
    assert field is None or response.json()["errors"][0]["field"] == field


async def test_another_users_session_is_answered_like_an_unknown_one(page: TokenPage) -> None:
    mallory = await page.stage.key("mallory")

    foreign = await page.ask({"session_ids": [page.first.session_id]}, key=mallory)
    unknown = await page.ask({"session_ids": [UNKNOWN]}, key=mallory)

    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.text.replace(page.first.session_id, UNKNOWN) == unknown.text


async def test_without_a_key_no_token_is_made(database: Database) -> None:
    async with set_stage(database, LOCAL).client() as client:
        response = await client.post("/v1/tokens", json={})

    assert (response.status_code, response.json()["type"]) == (403, "/problems/not_allowed")
    assert "throughline keys create" in response.json()["detail"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("update access_tokens set expires_at = now() - interval '1 second'", "The token expired at 20"),
        ("update api_keys set revoked_at = now()", "its key was revoked"),
        ("delete from api_keys", "The token is unknown"),
    ],
    ids=["expired", "revoked", "deleted"],
)
async def test_a_token_ends_with_its_time_and_with_its_key(
    page: TokenPage, database_url: str, end: str, reason: str
) -> None:
    token = await page.token(page.first)
    before = await page.get(f"/v1/sessions/{page.first.session_id}", token)
    await run_sql(database_url, end)

    after = await page.get(f"/v1/sessions/{page.first.session_id}", token)

    assert (before.status_code, after.status_code) == (200, 401)
    assert reason in after.json()["detail"]
    assert "POST /v1/tokens" in after.json()["detail"]


async def test_a_cached_token_is_not_served_beyond_its_time(page: TokenPage, database_url: str) -> None:
    stage = set_stage(page.stage.database, replace(KEYED, key_cache_seconds=HANG_SECONDS))
    token = await page.token(page.first)
    await run_sql(database_url, "update access_tokens set expires_at = now() + interval '0.3 seconds'")

    async with stage.client(key=token) as browser, asyncio.timeout(HANG_SECONDS):
        while (response := await browser.get(f"/v1/sessions/{page.first.session_id}")).status_code == 200:
            await asyncio.sleep(0.05)

    assert (response.status_code, "expired" in response.json()["detail"]) == (401, True)


async def test_every_process_serves_a_token(page: TokenPage) -> None:
    token = await page.token(page.first)

    async with set_stage(page.stage.database, KEYED).client(key=token) as other_process:
        response = await other_process.get(f"/v1/sessions/{page.first.session_id}")

    assert response.status_code == 200


async def test_a_token_for_one_session_learns_nothing_of_another_by_citations(
    page: TokenPage, database_url: str
) -> None:
    cited = f"See [#1 in session {page.second.session_id}]."
    await run_sql(
        database_url,
        "insert into messages (id, session_id, position, role, content, source) "
        "select gen_random_uuid(), id, message_count + 1, 'assistant', $2, 'api' from sessions where id = $1",
        UUID(page.first.session_id),
        cited,
    )
    await run_sql(
        database_url, "update sessions set message_count = message_count + 1 where id = $1", UUID(page.first.session_id)
    )
    path = f"/v1/sessions/{page.first.session_id}/messages?order=desc&limit=1"

    by_key, by_token = [await page.get(path, secret) for secret in (page.key, await page.token(page.first))]

    found = [reply.json()["data"][0]["citations"][0]["status"] for reply in (by_key, by_token)]
    assert found == ["valid", "no_such_message"]


async def test_an_event_stream_takes_a_token_in_its_address(page: TokenPage) -> None:
    events = f"/v1/runs/{page.first.run_id}/events?access_token="
    token = await page.token(page.first)

    followed = await page.get(f"{events}{token}")
    foreign = await page.get(f"/v1/runs/{page.second.run_id}/events?access_token={token}")
    both = await page.get(f"{events}{token}", token)
    twice = await page.get(f"{events}{token}&access_token={token}")
    unknown = await page.get(f"{events}tlt_{'x' * 43}")

    replies = (followed, foreign, both, twice, unknown)
    assert [reply.status_code for reply in replies] == [200, 404, 422, 422, 401]
    assert "event: run.completed" in followed.text
    assert all(token not in reply.text for reply in replies)


async def test_an_api_key_in_an_address_is_refused(page: TokenPage) -> None:
    response = await page.get(f"/v1/runs/{page.first.run_id}/events?access_token={page.key}")

    assert (response.status_code, response.json()["type"]) == (401, "/problems/not_authenticated")
    assert "never an API key" in response.json()["detail"]
    assert page.key not in response.text


async def test_no_other_route_takes_a_token_in_its_address(page: TokenPage, subtests: pytest.Subtests) -> None:
    token = await page.token()
    for method, template in sorted(set(routes_of(page.stage)) - OPEN_TO_ALL - {("GET", "/v1/runs/{run_id}/events")}):
        with subtests.test(f"{method} {template}"):
            async with page.stage.client() as client:
                path = f"{page.first.path(template)}?access_token={token}"
                response = await client.request(method, path, json=BODIES.get((method, template)))

            refused = response.json()
            assert response.status_code == (400 if "error" in refused else 422)
            assert (refused.get("error", {}).get("param") or refused["errors"][0]["field"]) == "access_token"
            assert token not in response.text


async def test_local_mode_takes_no_other_secret_in_an_address(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    async with stage.client() as client:
        owned = await owned_by(client)
        response = await client.get(f"/v1/runs/{owned.run_id}/events?access_token=anything")
    await stage.turns.settle()

    assert response.status_code == 401


async def test_no_token_is_written_to_a_log(page: TokenPage, caplog: pytest.LogCaptureFixture) -> None:
    token = await page.token(page.first)
    caplog.set_level(logging.DEBUG)
    asked = (page.first.run_id, page.second.run_id, UNKNOWN, "no-id")

    async def fail(*_: object) -> None:
        raise RuntimeError("the database has a defect")

    with structlog.testing.capture_logs() as entries:
        async with serving_app(page.stage.app, ConnectionLimits()) as url, httpx.AsyncClient(base_url=url) as client:
            replies = [await client.get(f"/v1/runs/{run}/events?access_token={token}") for run in asked]
            replies.append(await client.get(f"/v1/sessions?access_token={token}"))
            page.stage.database.access_tokens.authenticate = fail  # type: ignore[assignment]  # a defect
            replies.append(await client.get(f"/v1/runs/{page.first.run_id}/events?access_token={token}"))

    assert [reply.status_code for reply in replies] == [200, 404, 404, 404, 422, 500]
    assert any(entry["log_level"] == "error" for entry in entries)
    lines = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert token not in str(entries) + str(lines)
    assert all(token not in reply.text and token not in str(reply.headers) for reply in replies)


ON_BEHALF_OF = "On-Behalf-Of"


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client(key=await stage.key("backend", *Scope)) as client:
        yield client
    await stage.turns.settle()


async def test_an_empty_blank_or_repeated_user_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for names in ([""], ["  "], ["ada", "bob"], ["ada", "ada"], ["", "ada"]):
        with subtests.test(str(names)):
            response = await client.get("/v1/sessions", headers=[(ON_BEHALF_OF, name) for name in names])

            assert response.status_code == 422
            assert [error["field"] for error in response.json()["errors"]] == [ON_BEHALF_OF]


async def test_the_key_that_acts_for_a_user_is_recorded_on_the_run(client: httpx.AsyncClient) -> None:
    client.headers[ON_BEHALF_OF] = "ada"
    session = await open_session(client)

    answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

    run = (await client.get(f"/v1/runs/{answered['run']['id']}")).json()
    assert (run["author"], run["actor"]) == ("ada", "key of backend")
    assert answered["run"] == run


async def test_a_user_who_speaks_for_herself_has_no_actor(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

    assert (answered["run"]["author"], answered["run"]["actor"]) == ("backend", None)


async def test_without_a_key_it_is_said_which_one_is_needed_and_how_to_make_it(database: Database) -> None:
    async with set_stage(database).client(user="ann") as client:
        refused = await client.get("/v1/sessions")

    assert refused.status_code == 403
    assert "needs a key with the scope `act_as`, and no key was sent" in refused.json()["detail"]
    assert "throughline keys create --user NAME --scope read --scope write --scope act_as" in refused.json()["detail"]
