"""Clicks on buttons as Slack sends them: signed over HTTP, or over Socket Mode; acknowledged once they are stored."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import pytest

from fakes.api_stage import WallClock, set_stage
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.slack_commands import Asked
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Posted, Sender, say, sign
from fakes.slack_stage import IDENTITY, no_command, served_asgi
from fakes.slack_waiting import ANNA, DELETES, WaitingStage, waiting_stage
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database, DatabaseConfig
from throughline.db.statements.sql import sql
from throughline.domain.errors import DatabaseUnusable
from throughline.http.app import add_interface
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.decisions import NOT_STORED, ClickHandler
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.setup_check import manifest
from throughline.slack.socket_mode import SocketMode


@pytest.fixture
async def waiting(outgoing: DeliveryStage, ask: Asked) -> AsyncGenerator[WaitingStage]:
    async with waiting_stage(outgoing, ask) as stage:
        stage.turns.model.script(Call((DELETES,)), Say("Gone."))
        yield stage


async def ignore(_body: object) -> None:
    """Nothing else comes here."""


async def asked(waiting: WaitingStage) -> Posted:
    async with waiting.delivering():
        await waiting.take(say("delete it"))
        return await waiting.asked()


@asynccontextmanager
async def sending_to(waiting: WaitingStage, decisions: ClickHandler) -> AsyncIterator[Sender]:
    """Yield what sends Slack's requests over HTTP; clicks go to `decisions`."""
    api = set_stage(waiting.outgoing.database)
    listeners = Listeners(ignore, no_command, click=decisions.handle)
    bolt = make_bolt(SlackConfig(BOT_TOKEN, SIGNING_SECRET), IDENTITY, listeners)
    add_interface(api.app, PATH, EventsEndpoint(bolt, SIGNING_SECRET, WallClock()))
    async with served_asgi(api.app) as client:
        yield Sender(client, ack_seconds=HANG_SECONDS)


@asynccontextmanager
async def all_connections_held(narrow: Database) -> AsyncIterator[None]:
    """Hold the only connection of the database inside the block."""
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select 1"))
        is_held.set()
        await may_go.wait()

    holding = asyncio.create_task(narrow._transactions.run(hold))  # noqa: SLF001  # nobody else holds one so long
    await is_held.wait()
    try:
        yield
    finally:
        may_go.set()
        await holding


@pytest.fixture
async def sender(waiting: WaitingStage) -> AsyncGenerator[Sender]:
    async with sending_to(waiting, waiting.decisions) as sender:
        yield sender


async def test_a_signed_click_is_stored_before_it_is_acknowledged(waiting: WaitingStage, sender: Sender) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    headers = sign(body, "another secret") | {"Content-Type": "application/x-www-form-urlencoded"}

    forged = await sender.client.post(PATH, content=body, headers=headers)
    still = await waiting.statuses()
    taken = await sender.form(body)

    assert (forged.status_code, taken.status) == (401, 200)
    assert still == ["waiting"]
    assert await waiting.statuses() != ["waiting"]


async def test_a_click_that_cannot_be_stored_is_not_acknowledged(waiting: WaitingStage, sender: Sender) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    await run_sql(waiting.outgoing.url, "alter table slack_parts rename to away")

    refused = await sender.form(body)
    await run_sql(waiting.outgoing.url, "alter table away rename to slack_parts")

    assert refused.status in {500, 503}
    assert await waiting.statuses() == ["waiting"]


async def test_a_click_while_the_database_is_away_is_told_and_can_be_repeated(waiting: WaitingStage) -> None:
    body = urlencode({"payload": json.dumps(waiting.payload("approve", await asked(waiting)))})
    narrow = await Database.open(DatabaseConfig(**urls_of(waiting.outgoing.url), pool_size=1, pool_timeout_seconds=0.2))
    try:
        async with sending_to(waiting, waiting.decisions_on(narrow)) as sender:
            async with all_connections_held(narrow):
                refused = await sender.form(body)
                await waiting.outgoing.until(lambda: bool(waiting.notices))
            repeated = await sender.form(body)
    finally:
        await narrow.close()

    assert (refused.status, repeated.status) == (503, 200)
    assert waiting.notices == [(ANNA, NOT_STORED)]
    assert await waiting.statuses() != ["waiting"]


async def test_a_failed_click_is_told_in_the_thread_of_its_question(waiting: WaitingStage) -> None:
    message = await asked(waiting)
    await run_sql(waiting.outgoing.url, "alter table slack_parts rename to away")

    with pytest.raises(DatabaseUnusable):
        await waiting.click("approve", message)
    await waiting.outgoing.until(lambda: bool(waiting.notices))
    await run_sql(waiting.outgoing.url, "alter table away rename to slack_parts")

    assert [args["thread_ts"] for _, args in waiting.outgoing.double.workspace.responses] == [message.thread_ts]


async def test_a_click_comes_over_socket_mode_too(waiting: WaitingStage) -> None:
    message = await asked(waiting)
    double, clock = waiting.outgoing.double, waiting.outgoing.clock
    config = SlackConfig(BOT_TOKEN, SIGNING_SECRET, APP_TOKEN, double.url)
    bolt = make_bolt(config, IDENTITY, Listeners(ignore, no_command, click=waiting.decisions.handle))
    async with SocketMode(bolt, config, clock, SlackHealth(clock, is_all=True)).running():
        await double.sockets.connected.wait()
        acknowledged = await double.sockets.deliver("interactive", waiting.payload("approve", message))

    assert acknowledged is not None
    assert await waiting.statuses() != ["waiting"]


@pytest.mark.parametrize("url", ["", "https://bot.example.com"])
def test_the_manifest_turns_interactivity_on(url: str) -> None:
    written = json.loads(manifest("Throughline", url))["settings"]["interactivity"]

    assert written == {"is_enabled": True} | ({"request_url": f"{url}/slack/events"} if url else {})
