"""Socket Mode takes the same events through the same application; what is not stored is not acknowledged."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fakes.pooler import environment_of
from fakes.raw_sql import end_leases, run_sql, until_sql
from fakes.service_process import free_port, run_service, start_program
from fakes.slack_delivery import IDENTITY, no_command, no_stop
from fakes.slack_double import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    Failure,
    Person,
    Sender,
    SlackDouble,
    say,
)
from fakes.slack_double.payloads import app_mention, message, slash_command
from fakes.waiting import HANG_SECONDS, LOOK_SECONDS, HeldClock, PassingClock, until
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.summary import CompactionResult
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig, SlackHealth, SlackServices
from throughline.slack.front_end import open_slack
from throughline.slack.read_event import EventStorage
from throughline.slack.socket_mode import LONGEST_DELAY_SECONDS, LONGEST_PAUSE_SECONDS, SocketMode
from throughline.slack.store.database import slack_database
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
    storage = EventStorage(slack_database(database, "assistant"), IDENTITY, no_stop)
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

    async def summarize(_owner: UserId, _session: SessionId, _request: SummaryRequest) -> CompactionResult:
        raise AssertionError("nobody asks for a summary")

    clock, config = PassingClock(), SlackConfig(BOT_TOKEN, app_token=APP_TOKEN, api_url=slack.url)
    services = SlackServices(database, slack_database(database, "assistant"), report, summarize, clock)
    health = SlackHealth(clock, is_all=True)
    async with open_slack(config, services, health, "worker", over_http=False):
        await until(lambda: health.disconnected is None)
        at_start = len(slack.workspace.called("apps.connections.open"))
        await slack.sockets.close()
        await until(lambda: len(slack.workspace.called("apps.connections.open")) > at_start)

    assert at_start == 1


@pytest.fixture
def over_http(database_url: str, slack: SlackDouble) -> Mapping[str, str]:
    return {
        **environment_of(database_url),
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": slack.url,
        "LEASE_SECONDS": "4",
        "LOG_FORMAT": "json",
    }


async def until_posted(slack: SlackDouble, count: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len([message for message in slack.workspace.posted if not message.is_streaming]) < count:
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_message_over_http_is_answered_in_its_thread(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    said = say("What is 6 * 7?")
    async with run_service(tmp_path, over_http) as service:
        assert (await Sender(service.client).deliver(message(said))).status == 200
        await until_posted(slack, 1)

    answer = slack.workspace.posted[0]
    assert answer.thread_ts == said.ts
    assert "42" in answer.text
    log = service.log.read_text()
    assert "6 * 7" not in log
    assert BOT_TOKEN not in log
    assert SIGNING_SECRET not in log


@pytest.mark.slow
async def test_a_message_over_socket_mode_is_answered(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    settings = {**over_http, "SLACK_SIGNING_SECRET": "", "SLACK_APP_TOKEN": APP_TOKEN}
    process = await start_program(tmp_path, settings, "slack", log=tmp_path / "log")
    try:
        async with asyncio.timeout(HANG_SECONDS):
            await slack.sockets.connected.wait()
        assert await slack.sockets.deliver("events_api", message(say("What is 6 * 7?"))) is not None
        await until_posted(slack, 1)
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert "42" in slack.workspace.posted[0].text


@pytest.mark.slow
async def test_messages_acknowledged_by_a_service_that_was_killed_are_answered_once(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database_url: str
) -> None:
    port = free_port()
    events = [message(say(f"What is {n} * 7?", channel=f"D0{n:07}", user=f"U0{n:07}")) for n in range(10)]
    async with run_service(tmp_path, over_http, port=port) as service:
        await asyncio.gather(*(Sender(service.client).once(event) for event in events))
        await service.kill()
    await end_leases(database_url)
    async with run_service(tmp_path, over_http, port=port) as service:
        await asyncio.gather(*(Sender(service.client).once(event, retry=1) for event in events))
        await until_posted(slack, 10)
        await asyncio.sleep(1)

    assert len(slack.workspace.posted) == 10
    assert len({answer.channel for answer in slack.workspace.posted}) == 10


@pytest.mark.slow
async def test_a_thread_goes_on_over_rest_and_its_history_has_both(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database_url: str
) -> None:
    slack.workspace.people["U0ANNA001"] = Person("U0ANNA001", "Anna", "anna@example.com")
    settings = {**over_http, "SLACK_LINK_BY_EMAIL": "true", "BOOTSTRAP_API_KEY": "a-key-of-many-characters"}
    said = say("My name is Anna.")
    headers = {"Authorization": "Bearer a-key-of-many-characters", "On-Behalf-Of": "anna@example.com"}
    async with run_service(tmp_path, settings) as service:
        await Sender(service.client).deliver(message(said))
        await until_posted(slack, 1)
        await until_sql(database_url, "select 1 from slack_users where linked_by = 'email'")
        listed = (await service.client.get("/v1/sessions", headers=headers)).json()["data"]
        path = f"/v1/sessions/{listed[0]['id']}/messages"
        sent = await service.client.post(path, json={"content": "And over REST?"}, headers=headers)
        await Sender(service.client).deliver(message(say("And again in Slack.", thread_ts=said.ts)))
        await until_posted(slack, 2)
        history = (await service.client.get(path, headers=headers)).json()["data"]

    assert sent.status_code == 200
    assert [(item["source"], item["role"]) for item in history if item["role"] == "user"] == [
        ("slack", "user"),
        ("api", "user"),
        ("slack", "user"),
    ]
    assert len(slack.workspace.posted) == 2, "what was asked over REST is answered there"


@pytest.mark.slow
async def test_agent_context_and_help_answer_their_asker_alone(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble
) -> None:
    said = say(f"<@{BOT_USER}> hello", channel="C0GENERAL")
    response_url = slack.url.replace("/api/", "/response/anna")
    async with run_service(tmp_path, over_http) as service:
        sender = Sender(service.client)
        await sender.deliver(app_mention(said))
        await until_posted(slack, 1)

        def command(text: str, user: str) -> str:
            return slash_command(text, user=user, channel="C0GENERAL", response_url=response_url)

        context = await sender.form(command("context", "U0ANNA001"))
        stranger = await sender.form(command("context", "U0BERT001"))
        helped = await sender.form(command("what?", "U0ANNA001"))

    assert (context.status, stranger.status, helped.status) == (200, 200, 200)
    assert "N messages [█" in json.loads(context.text)["blocks"][1]["text"]["text"]
    assert "no conversation here" in stranger.text
    assert "/agent summarize" in helped.text


@pytest.mark.slow
async def test_a_session_begun_over_rest_goes_on_in_slack_with_one_history(
    tmp_path: Path, over_http: Mapping[str, str], slack: SlackDouble, database: Database
) -> None:
    async with run_service(tmp_path, over_http) as service:
        session = await service.new_session()
        await service.send(session, "My name is Anna.")
        local = await database.users.get_or_create("local")
        code = await slack_database(database, "assistant").links.new_code(local)
        sender = Sender(service.client)
        await sender.deliver(message(say("Hello")))
        await until_posted(slack, 1)
        told = [
            await sender.form(slash_command(text, user="U0ANNA001", channel="D0ANNA001", response_url=""))
            for text in (f"link {code}", f"resume {session}")
        ]
        await sender.deliver(message(say("What is 6 * 7?")))
        await until_posted(slack, 2)
        history = await service.history(session)

    assert told[1].text == 'Your next message here (outside a thread) goes on with "My name is Anna.".'
    assert [(item["source"], item["role"]) for item in history if item["role"] == "user"] == [
        ("api", "user"),
        ("slack", "user"),
    ]
    assert "42" in slack.workspace.posted[1].text
