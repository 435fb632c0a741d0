"""What programs do while Slack is away or not heard: they start, go on, and `/health/ready` tells why."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.service_process import free_port, run_service, start_program
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Sender, SlackDouble, say, sign
from fakes.slack_double.payloads import message
from fakes.waiting import HANG_SECONDS, until, until_found

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(database_url: str, slack: SlackDouble) -> Mapping[str, str]:
    return {**environment_of(database_url), "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_API_URL": slack.url}


@asynccontextmanager
async def slack_program(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[httpx.AsyncClient]:
    """Run `throughline slack`; yields a client of its health port."""
    port = free_port()
    environment = {**settings, "SLACK_APP_TOKEN": APP_TOKEN, "HEALTH_PORT": str(port)}
    process = await start_program(folder, environment, "slack", log=folder / "log")
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_SECONDS) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: httpx.AsyncClient, status: str) -> httpx.Response:
    """Return the answer that has this status."""
    found: list[httpx.Response] = []

    async def look() -> bool:
        try:
            found.append(await client.get("/health/ready"))
        except httpx.TransportError:
            return False
        return bool(found[-1].json()["status"] == status)

    await until_found(look)
    return found[-1]


async def test_a_process_that_cannot_hear_slack_is_not_ready_until_it_does(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    async with slack_program(tmp_path, settings) as health:
        await until_ready(health, "ok")
        slack.workspace.revoked[APP_TOKEN] = "invalid_auth"
        await slack.sockets.close()
        told = await until_ready(health, "unavailable")
        slack.workspace.revoked.clear()
        await until_ready(health, "ok")

    assert told.status_code == 503
    assert (told.json()["checks"]["slack"], told.json()["checks"]["worker"]) == (False, True)
    assert told.json()["reasons"]["slack"].endswith("UTC: not connected, invalid_auth")


async def test_the_socket_program_starts_while_slack_is_away_and_connects_when_it_is_back(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.is_away = True
    async with slack_program(tmp_path, settings) as health:
        await until_found(lambda: _says(health, worker=True))
        told = (await until_ready(health, "unavailable")).json()
        slack.workspace.is_away = False
        await until_ready(health, "ok")
        await slack.sockets.deliver("events_api", message(say("What is 6 * 7?")), timeout_seconds=HANG_SECONDS)
        await until(lambda: bool(slack.workspace.posted) and not slack.workspace.posted[0].is_streaming)

    assert "Slack does not answer at" in told["reasons"]["slack"]
    assert "42" in slack.workspace.posted[0].text


async def _says(health: httpx.AsyncClient, **expected: bool) -> bool:
    try:
        checks = (await health.get("/health/ready")).json()["checks"]
    except httpx.TransportError:
        return False
    return bool(checks.items() >= expected.items())


async def test_rest_is_served_while_slack_is_away_and_events_come_again(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.is_away = True
    event = message(say("What is 6 * 7?"))
    body = json.dumps(event)
    async with run_service(tmp_path, {**settings, "SLACK_SIGNING_SECRET": SIGNING_SECRET}) as service:
        told = await service.client.get("/health/ready")
        answered = await service.send(await service.new_session(), "hello")
        signed = {**sign(body), "Content-Type": "application/json"}
        refused = await service.client.post("/slack/events", content=body, headers=signed)
        forged = await service.client.post("/slack/events", content=body, headers={"Content-Type": "application/json"})
        slack.workspace.is_away = False
        await until_ready(service.client, "ok")
        taken = await Sender(service.client, ack_seconds=HANG_SECONDS).once(event, retry=1)
        await until(lambda: bool(slack.workspace.posted) and not slack.workspace.posted[0].is_streaming)

    assert (told.status_code, told.json()["status"]) == (200, "degraded")
    assert "Slack does not answer at" in told.json()["reasons"]["slack"]
    assert answered.status_code == 200
    assert (refused.status_code, refused.headers["retry-after"], forged.status_code) == (503, "30", 401)
    assert taken.status == 200
    assert "42" in slack.workspace.posted[0].text


OPEN = "unauthenticated requests served"
KEY = "tl_of_this_service_alone_24"


@pytest.mark.parametrize(("key", "warnings"), [({}, 1), ({"BOOTSTRAP_API_KEY": KEY}, 0)])
async def test_a_service_that_slack_reaches_through_a_proxy_says_so_while_it_has_no_key(
    tmp_path: Path, settings: Mapping[str, str], key: Mapping[str, str], warnings: int
) -> None:
    async with run_service(tmp_path, {**settings, **key, "SLACK_SIGNING_SECRET": SIGNING_SECRET}) as service:
        assert service.log.read_text().count(OPEN) == warnings


async def test_a_token_that_slack_refuses_ends_the_start_with_its_sentence(
    tmp_path: Path, settings: Mapping[str, str], slack: SlackDouble
) -> None:
    slack.workspace.revoked[BOT_TOKEN] = "token_revoked"
    log = tmp_path / "log"
    environment = {**settings, "SLACK_SIGNING_SECRET": SIGNING_SECRET}
    process = await start_program(tmp_path, environment, "serve", "--port", str(free_port()), log=log)

    assert await process.wait() != 0
    assert "Slack does not accept SLACK_BOT_TOKEN (token_revoked)." in log.read_text()
