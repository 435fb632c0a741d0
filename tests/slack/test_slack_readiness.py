"""What `/health/ready` tells of Slack: whether this process can hear it, and why not."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.service_process import free_port, start_program
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SlackDouble
from fakes.waiting import HANG_SECONDS, until_found

pytestmark = pytest.mark.slow


@pytest.fixture
async def health(tmp_path: Path, database_url: str, slack: SlackDouble) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client of the health port of a `throughline slack`."""
    port = free_port()
    settings: Mapping[str, str] = {
        **environment_of(database_url),
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "SLACK_API_URL": slack.url,
        "HEALTH_PORT": str(port),
    }
    process = await start_program(tmp_path, settings, "slack", log=tmp_path / "log")
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_SECONDS) as client:
            yield client
    finally:
        process.terminate()
        await process.wait()


async def test_a_process_that_cannot_hear_slack_is_not_ready_until_it_does(
    health: httpx.AsyncClient, slack: SlackDouble
) -> None:
    async def status() -> int:
        try:
            return (await health.get("/health/ready")).status_code
        except httpx.TransportError:
            return 0

    async def is_ready() -> bool:
        return await status() == httpx.codes.OK

    async def is_not_ready() -> bool:
        return await status() == httpx.codes.SERVICE_UNAVAILABLE

    await until_found(is_ready)
    slack.workspace.revoked[APP_TOKEN] = "invalid_auth"
    await slack.sockets.close()
    await until_found(is_not_ready)
    told = (await health.get("/health/ready")).json()
    slack.workspace.revoked.clear()
    await until_found(is_ready)

    assert told["status"] == "unavailable"
    assert told["checks"]["slack"] is False
    assert told["checks"]["worker"] is True
    assert told["reasons"]["slack"].endswith("UTC: not connected, invalid_auth")
