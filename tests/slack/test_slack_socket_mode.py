"""Socket Mode takes the same events through the same application; what is not stored is not acknowledged."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from app.db.database import Database
from app.slack.bolt import Listeners, make_bolt
from app.slack.config import SlackConfig
from app.slack.intake import Intake
from app.slack.socket_mode import socket_mode
from fakes.raw_sql import run_sql
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import IDENTITY, no_command, no_stop
from fakes.waiting import HANG_SECONDS


@dataclass
class Line:
    """A connected Socket Mode client and the double at the other end."""

    slack: SlackDouble
    url: str

    async def texts(self) -> list[object]:
        return [text for (text,) in await run_sql(self.url, "select input ->> 'content' from runs order by seq")]


@pytest.fixture
async def line(database: Database, database_url: str, slack: SlackDouble) -> AsyncGenerator[Line]:
    config = SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=slack.url)
    intake = Intake(database.open_slack("assistant"), IDENTITY, no_stop)
    async with socket_mode(make_bolt(config, IDENTITY, Listeners(intake.take, no_command)), config):
        await slack.sockets.connected.wait()
        yield Line(slack, database_url)


async def test_an_event_is_stored_and_acknowledged(line: Line) -> None:
    acknowledged = await line.slack.sockets.deliver("events_api", message(say("hello")))

    assert acknowledged is not None
    assert await line.texts() == ["hello"]


async def test_retries_over_the_socket_are_one_run(line: Line) -> None:
    payload = message(say("once"))
    deliveries = (line.slack.sockets.deliver("events_api", payload, attempt=attempt) for attempt in range(4))

    assert None not in await asyncio.gather(*deliveries)
    assert await line.texts() == ["once"]


async def test_what_could_not_be_stored_is_not_acknowledged(line: Line) -> None:
    payload = message(say("hold on"))
    await run_sql(line.url, "alter table slack_events rename to away")
    refused = await line.slack.sockets.deliver("events_api", payload, timeout_seconds=0.5)
    await run_sql(line.url, "alter table away rename to slack_events")
    taken = await line.slack.sockets.deliver("events_api", payload, attempt=1)

    assert refused is None
    assert taken is not None
    assert await line.texts() == ["hold on"]


async def test_a_closed_connection_is_opened_again(line: Line) -> None:
    line.slack.sockets.connected.clear()
    await line.slack.sockets.connections[-1].close()
    async with asyncio.timeout(HANG_SECONDS):
        await line.slack.sockets.connected.wait()

    assert await line.slack.sockets.deliver("events_api", message(say("still there"))) is not None
