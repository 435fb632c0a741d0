"""Socket Mode takes the same events through the same application; what is not stored is not acknowledged."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from fakes.manual_clock import HeldClock, PassingClock
from fakes.raw_sql import run_sql
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, Failure, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import IDENTITY, no_command, no_stop
from fakes.waiting import HANG_SECONDS, LOOK_SECONDS, until
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.summary import CompactionResult
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig, SlackHealth, SlackServices
from throughline.slack.open_slack import open_slack
from throughline.slack.read_event import EventStorage
from throughline.slack.socket_mode import LONGEST_DELAY_SECONDS, LONGEST_PAUSE_SECONDS, SocketMode
from throughline.turn.summary.reread import SummaryRequest


@dataclass
class Line:
    """A connected Socket Mode client and the double at the other end."""

    slack: SlackDouble
    url: str
    clock: PassingClock = field(default_factory=PassingClock)
    health: SlackHealth = field(init=False)

    def __post_init__(self) -> None:
        self.health = SlackHealth(self.clock, is_all=True)

    @property
    def is_heard(self) -> bool:
        return self.health.disconnected is None

    async def cut(self) -> None:
        self.slack.sockets.connected.clear()
        await self.slack.sockets.close()

    async def texts(self) -> list[object]:
        return [text for (text,) in await run_sql(self.url, "select input ->> 'content' from runs order by seq")]


@pytest.fixture
async def line(database: Database, database_url: str, slack: SlackDouble) -> AsyncGenerator[Line]:
    config = SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=slack.url)
    storage = EventStorage(database.open_slack("assistant"), IDENTITY, no_stop)
    bolt = make_bolt(config, IDENTITY, Listeners(storage.store, no_command))
    opened = Line(slack, database_url)
    async with SocketMode(bolt, config, opened.clock, opened.health).running():
        await until(lambda: opened.is_heard)
        yield opened


async def test_an_event_is_stored_and_acknowledged(line: Line) -> None:
    acknowledged = await line.slack.sockets.deliver("events_api", message(say("hello")))

    assert acknowledged is not None
    assert await line.texts() == ["hello"]


async def test_retries_over_the_socket_are_one_run(line: Line) -> None:
    payload = message(say("once"))
    deliveries = (line.slack.sockets.deliver("events_api", payload, attempt=attempt) for attempt in range(4))

    assert None not in await asyncio.gather(*deliveries)
    assert await line.texts() == ["once"]


async def test_a_retry_whose_earlier_deliveries_nobody_heard_is_taken_once(line: Line, database_url: str) -> None:
    payload = message(say("while no socket was open"))

    first = await line.slack.sockets.deliver("events_api", payload, attempt=2)
    await run_sql(database_url, "update runs set status = 'succeeded', started_at = now(), finished_at = now()")
    after_the_answer = await line.slack.sockets.deliver("events_api", payload, attempt=3)

    assert first is not None
    assert after_the_answer is not None
    assert await line.texts() == ["while no socket was open"]


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
    await line.cut()
    async with asyncio.timeout(HANG_SECONDS):
        await line.slack.sockets.connected.wait()

    assert await line.slack.sockets.deliver("events_api", message(say("still there"))) is not None


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "link_disabled", "too_many_websockets"])
async def test_where_slack_asks_for_another_connection_it_gets_one(line: Line, reason: str) -> None:
    [first] = line.slack.sockets.connections
    await line.slack.sockets.send_away(reason)
    await until(lambda: line.slack.sockets.connections not in ([], [first]) and first.closed)

    assert await line.slack.sockets.deliver("events_api", message(say("over here"))) is not None
    assert line.is_heard


@pytest.mark.parametrize("failures", [0, 1])
async def test_what_is_under_way_is_acknowledged_over_the_connection_it_came_by(
    slack: SlackDouble, failures: int
) -> None:
    clock, begun, may_end = HeldClock(), asyncio.Event(), asyncio.Event()

    async def take(_body: object) -> None:
        begun.set()
        await may_end.wait()

    config = SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=slack.url)
    bolt = make_bolt(config, IDENTITY, Listeners(take, no_command))
    async with SocketMode(bolt, config, clock, SlackHealth(clock, is_all=True)).running():
        await until(lambda: bool(slack.sockets.connections))
        sent = slack.sockets.deliver("events_api", message(say("slowly")), timeout_seconds=HANG_SECONDS)
        delivery = asyncio.create_task(sent)
        await begun.wait()
        slack.rules.fail("apps.connections.open", *[Failure(status=503)] * failures)
        await slack.sockets.send_away("refresh_requested")
        while len(slack.workspace.called("apps.connections.open")) < 2 + failures:
            clock.advance(1)
            await asyncio.sleep(LOOK_SECONDS)
        await until(lambda: len(slack.sockets.connections) == 2)
        may_end.set()

        assert await delivery is not None


async def test_a_connection_that_still_works_is_kept_while_no_other_can_be_opened(line: Line) -> None:
    [first] = line.slack.sockets.connections
    line.slack.sockets.turned_away = 1_000
    await line.slack.sockets.send_away("warning")
    await until(lambda: line.slack.sockets.turned_away < 990)
    acknowledged = await line.slack.sockets.deliver("events_api", message(say("meanwhile")))
    line.slack.sockets.turned_away = 0
    await until(lambda: line.slack.sockets.connections not in ([], [first]) and first.closed)

    assert acknowledged is not None
    assert await line.slack.sockets.deliver("events_api", message(say("over here"))) is not None
    assert await line.texts() == ["meanwhile", "over here"]


async def test_an_address_that_is_refused_is_not_tried_again(line: Line) -> None:
    line.slack.sockets.turned_away = 1
    await line.cut()
    async with asyncio.timeout(HANG_SECONDS):
        await line.slack.sockets.connected.wait()

    assert await line.slack.sockets.deliver("events_api", message(say("a fresh one"))) is not None
    assert len(line.slack.workspace.called("apps.connections.open")) == 3


async def test_who_hears_nothing_for_long_says_so_once_and_once_that_it_is_over(line: Line) -> None:
    with capture_logs() as logs:
        line.slack.sockets.turned_away = 1_000
        await line.cut()
        await until(lambda: not line.is_heard)
        tried = line.slack.sockets.turned_away
        await until(lambda: line.slack.sockets.turned_away < tried - 1)
        told = str(line.health.disconnected)
        line.slack.sockets.turned_away = 0
        await until(lambda: line.is_heard)

    assert told.endswith("UTC: not connected, status 408")
    assert [log["reason"] for log in logs if log["log_level"] == "warning"] == ["status 408"]
    assert [log["event"] for log in logs][-1] == "slack connected"
    assert await line.slack.sockets.deliver("events_api", message(say("and now?"))) is not None


async def test_a_token_that_is_revoked_is_told_and_holds_again_without_a_restart(line: Line) -> None:
    with capture_logs() as logs:
        line.slack.workspace.revoked[APP_TOKEN] = "invalid_auth"
        await line.cut()
        await until(lambda: not line.is_heard)
        told = str(line.health.disconnected)
        line.slack.workspace.revoked.clear()
        await until(lambda: line.is_heard)

    assert told.endswith("not connected, invalid_auth")
    assert APP_TOKEN not in str(logs)
    assert await line.slack.sockets.deliver("events_api", message(say("again"))) is not None


async def test_tries_come_less_and_less_often(line: Line) -> None:
    line.slack.rules.fail("apps.connections.open", *[Failure(status=503)] * 10)
    line.clock.slept.clear()
    await line.cut()
    async with asyncio.timeout(HANG_SECONDS):
        await line.slack.sockets.connected.wait()

    pauses = [pause for pause in line.clock.slept if pause > 1]
    assert pauses[:5] == [2, 4, 8, 16, 32]
    assert set(pauses[5:]) == {LONGEST_PAUSE_SECONDS}


@pytest.mark.parametrize(("named", "waited"), [(100, 100), (100_000, LONGEST_DELAY_SECONDS)])
async def test_a_pause_that_slack_names_is_kept(line: Line, named: int, waited: float) -> None:
    line.slack.rules.fail("apps.connections.open", Failure(status=429, retry_after=named))
    line.clock.slept.clear()
    await line.cut()
    async with asyncio.timeout(HANG_SECONDS):
        await line.slack.sockets.connected.wait()

    assert max(line.clock.slept) == waited
    assert len(line.slack.workspace.called("apps.connections.open")) == 3


async def test_an_address_that_was_given_at_start_is_used_for_the_first_connection(
    database: Database, slack: SlackDouble
) -> None:
    async def report(_owner: UserId, _session: SessionId) -> ContextReport:
        raise AssertionError("nobody asks for a report")

    async def summarize(_owner: UserId, _session: SessionId, _wish: SummaryRequest) -> CompactionResult:
        raise AssertionError("nobody asks for a summary")

    clock, config = PassingClock(), SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=slack.url)
    services = SlackServices(database, database.open_slack("assistant"), report, summarize, clock)
    health = SlackHealth(clock, is_all=True)
    async with open_slack(config, services, health, "worker", over_http=False):
        await until(lambda: health.disconnected is None)
        at_start = len(slack.workspace.called("apps.connections.open"))
        await slack.sockets.close()
        await until(lambda: len(slack.workspace.called("apps.connections.open")) > at_start)

    assert at_start == 1
