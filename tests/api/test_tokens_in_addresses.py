"""Access tokens in the address of an event stream, as browsers send them: nowhere else, no keys, and in no log."""

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
import structlog

from api.test_connection_limits import serving_app
from api.test_isolation import OPEN_TO_ALL, routes_of
from fakes.access_tokens import BODIES, UNKNOWN, TokenPage, open_page, owned_by
from fakes.api_stage import LOCAL, set_stage
from throughline.db.database import Database
from throughline.http.protocol import ConnectionLimits


@pytest.fixture
async def page(database: Database) -> AsyncIterator[TokenPage]:
    async with open_page(database) as page:
        yield page


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
