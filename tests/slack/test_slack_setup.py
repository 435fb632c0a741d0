"""What an operator is told at start, and the manifest that leaves little to do wrong."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from fakes.api_stage import WallClock
from fakes.provider_double.json_types import Json
from fakes.scripted_turns import REPORT
from fakes.slack_delivery import IDENTITY, DeliveryStage, SlackStage, dispatcher_of, no_command, served_asgi
from fakes.slack_double import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    TEAM,
    Failure,
    Person,
    Sender,
    SlackDouble,
    say,
)
from fakes.slack_double.payloads import (
    BOT_ID,
    app_mention,
    app_rate_limited,
    app_uninstalled,
    edited,
    left,
    message,
    tokens_revoked,
)
from fakes.waiting import ManualClock, PassingClock, until
from throughline.context.explain_context import ContextReport
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import SettingInvalid
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.slack.bolt import CommandReply, Listeners, make_bolt, make_client, silent_logger
from throughline.slack.commands import Commands
from throughline.slack.config import Identity, SlackConfig, SlackHealth, SlackServices
from throughline.slack.http import EventsEndpoint
from throughline.slack.maintenance import Maintenance
from throughline.slack.read_event import read_event
from throughline.slack.setup_check import BOT_SCOPES, LEAVING_SCOPES, Identification, TokenMonitor, manifest
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import Left, SlackMessage
from throughline.turn.summary.reread import SummaryRequest


def asking(config: SlackConfig, health: SlackHealth | None = None) -> Identification:
    clock = ManualClock()
    return Identification(
        make_client(config, silent_logger()), config, clock, health or SlackHealth(clock, is_all=False)
    )


async def told(config: SlackConfig, *, over_http: bool = True) -> str:
    with pytest.raises(SettingInvalid) as caught:
        await asking(config).at_start(over_http=over_http)
    for secret in (config.bot_token, config.signing_secret, config.app_token):
        assert not secret or secret not in caught.value.detail
    return caught.value.detail


def config_of(slack: SlackDouble, *, bot: str = BOT_TOKEN, signing: str = SIGNING_SECRET, app: str = "") -> SlackConfig:
    return SlackConfig(bot, signing, app, slack.url)


async def test_the_bot_learns_who_it_is(slack: SlackDouble) -> None:
    found = await asking(config_of(slack)).at_start(over_http=True)

    assert found is not None
    assert (found.team_id, found.bot_user_id, found.team_name) == (TEAM, BOT_USER, "Double")


async def test_missing_and_malformed_secrets_are_told_apart(slack: SlackDouble) -> None:
    assert "SLACK_BOT_TOKEN is not set" in await told(config_of(slack, bot=""))
    assert "SLACK_BOT_TOKEN does not begin with xoxb-" in await told(config_of(slack, bot="xapp-1"))
    assert "SLACK_SIGNING_SECRET is not set. Set it to the signing secret on the app's page" in await told(
        config_of(slack, signing="")
    )
    assert "SLACK_SIGNING_SECRET has 5 characters instead of 32. Set it to" in await told(
        config_of(slack, signing="short")
    )
    assert "SLACK_APP_TOKEN is not set" in await told(config_of(slack), over_http=False)
    assert "does not begin with xapp-" in await told(config_of(slack, app="xoxb-1"), over_http=False)


async def test_tokens_that_slack_does_not_accept_are_told(slack: SlackDouble) -> None:
    assert "does not accept SLACK_BOT_TOKEN (invalid_auth)" in await told(config_of(slack, bot="xoxb-old"))
    assert "does not accept SLACK_APP_TOKEN (invalid_auth)" in await told(
        config_of(slack, app="xapp-old"), over_http=False
    )
    assert await asking(config_of(slack, app=APP_TOKEN)).at_start(over_http=False) is not None


async def test_missing_scopes_are_named(slack: SlackDouble) -> None:
    slack.workspace.scopes = tuple(scope for scope in BOT_SCOPES if scope not in {"commands", "reactions:read"})

    assert "lacks the bot scopes commands, reactions:read." in await told(config_of(slack))


async def test_without_the_scopes_that_tell_who_leaves_it_starts_and_says_what_is_missed(slack: SlackDouble) -> None:
    config = config_of(slack)
    told = []
    for scopes in (BOT_SCOPES, (*BOT_SCOPES, "channels:read"), (*BOT_SCOPES, *LEAVING_SCOPES)):
        slack.workspace.scopes = scopes
        with capture_logs() as logged:
            await asking(config).at_start(over_http=True)
        told.append([entry["missing"] for entry in logged])

    assert told == [["channels:read, groups:read"], ["groups:read"], []]
    written = json.loads(manifest("Helper", ""))
    assert set(LEAVING_SCOPES) <= set(written["oauth_config"]["scopes"]["bot"])
    assert "member_left_channel" in written["settings"]["event_subscriptions"]["bot_events"]


PASSING = [
    Failure(status=503),
    Failure(drops=True),
    Failure(status=429, retry_after=1),
    Failure(error="service_unavailable"),
    Failure(error="fatal_error", status=500),
    Failure(error="team_added_to_org"),
]


@pytest.mark.parametrize("failure", PASSING)
async def test_a_slack_that_is_away_ends_no_start_and_is_asked_again(slack: SlackDouble, failure: Failure) -> None:
    slack.rules.fail("auth.test", *[failure] * 12)
    health = SlackHealth(ManualClock(), is_all=False)
    identification = asking(config_of(slack), health)

    with capture_logs() as logs:
        assert await identification.at_start(over_http=True) is None
        away = str(health.disconnected)
        found = await identification.until_known()

    assert found.team_id == TEAM
    assert "Slack does not answer at http://127.0.0.1:" in away
    assert [log["log_level"] for log in logs] == ["warning"]


async def test_it_is_asked_less_and_less_often(slack: SlackDouble) -> None:
    slack.rules.fail("auth.test", *[Failure(status=503)] * 8)
    clock, config = ManualClock(), config_of(slack)
    health = SlackHealth(clock, is_all=False)

    await Identification(make_client(config, silent_logger()), config, clock, health).until_known()

    assert clock.slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_what_is_refused_late_is_told_and_asked_about_again(slack: SlackDouble) -> None:
    slack.rules.fail("auth.test", Failure(status=503), Failure(error="account_inactive"), Failure(status=503))
    health = SlackHealth(ManualClock(), is_all=False)
    identification = asking(config_of(slack), health)

    with capture_logs() as logs:
        assert await identification.at_start(over_http=True) is None
        await identification.until_known()

    away, refused, again = [log["reason"] for log in logs]
    assert away == again
    assert refused.startswith("Slack does not accept SLACK_BOT_TOKEN (account_inactive).")


async def test_an_app_token_that_cannot_be_asked_about_ends_no_start(slack: SlackDouble) -> None:
    slack.rules.fail("apps.connections.open", Failure(error="internal_error"))

    assert await asking(config_of(slack, app=APP_TOKEN)).at_start(over_http=False) is not None


async def test_a_slack_out_of_reach_is_told_with_its_address() -> None:
    away = SlackConfig(BOT_TOKEN, SIGNING_SECRET, "", "http://127.0.0.1:9/api/")
    health = SlackHealth(ManualClock(), is_all=False)

    assert await asking(away, health).at_start(over_http=True) is None
    assert "Slack does not answer at http://127.0.0.1:9/api/ (SLACK_API_URL)." in str(health.disconnected)


def test_the_manifest_for_http_names_its_address_everywhere() -> None:
    written = json.loads(manifest("Helper", "https://bot.example.com/"))

    address = "https://bot.example.com/slack/events"
    assert written["settings"]["event_subscriptions"]["request_url"] == address
    assert written["features"]["slash_commands"][0]["url"] == address
    assert written["settings"]["socket_mode_enabled"] is False
    assert {"app_uninstalled", "tokens_revoked"} <= set(written["settings"]["event_subscriptions"]["bot_events"])
    assert set(BOT_SCOPES) <= set(written["oauth_config"]["scopes"]["bot"])


def test_the_manifest_for_socket_mode_names_no_address() -> None:
    written = manifest("Helper", "")

    assert "request_url" not in written
    assert json.loads(written)["settings"]["socket_mode_enabled"] is True


def test_events_that_cannot_be_read_ask_nothing_of_us() -> None:
    for body in ({}, {"event": None}, {"event_id": "E", "event": {}}, {"event_id": 1, "event": {"type": []}}):
        assert read_event(body, IDENTITY) is None
    said = message(say("x"))
    del said["event"]["ts"]
    assert read_event(said, IDENTITY) is None


@dataclass
class Installed:
    """An installation, the endpoint that tells it of events, and the double that it asks."""

    slack: SlackDouble
    health: SlackHealth
    sender: Sender

    async def told(self, payload: Json) -> str:
        """Deliver the event; return what readiness then says of the token, '' for nothing."""
        assert (await self.sender.once(payload)).status == 200
        trouble = self.health.token_refused
        return "" if trouble is None else trouble.reason


async def take_none(_body: object) -> None:
    raise AssertionError("events about the app are no messages")


@pytest.fixture
async def installed(slack: SlackDouble) -> AsyncGenerator[Installed]:
    clock, config = PassingClock(), SlackConfig(BOT_TOKEN, SIGNING_SECRET, api_url=slack.url)
    health = SlackHealth(clock, is_all=False)
    installation = TokenMonitor(make_client(config, silent_logger()), config, IDENTITY, clock, health)
    bolt = make_bolt(config, IDENTITY, Listeners(take_none, no_command, installation.take))
    slack.workspace.revoked[BOT_TOKEN] = "account_inactive"
    endpoint = EventsEndpoint(bolt, SIGNING_SECRET, WallClock())
    async with installation.running(), served_asgi(endpoint) as client:
        yield Installed(slack, health, Sender(client))


@pytest.mark.parametrize("event", [app_uninstalled(), tokens_revoked(bots=[BOT_USER])])
async def test_who_is_uninstalled_says_so_once_and_is_well_once_slack_accepts_the_token(
    installed: Installed, event: Json
) -> None:
    with capture_logs() as logs:
        assert await installed.told(event) == event["event"]["type"]
        assert await installed.told(event) == event["event"]["type"]
        await until(lambda: len(installed.slack.workspace.called("auth.test")) > 2)
        assert installed.health.token_refused is not None
        installed.slack.workspace.revoked.clear()
        await until(lambda: installed.health.token_refused is None)

    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert "install the app again" in logs[0]["hint"]


async def test_only_our_own_bots_token_is_our_concern(installed: Installed) -> None:
    assert await installed.told(tokens_revoked(people=["U0ANNA001"])) == ""
    assert await installed.told(tokens_revoked(bots=["U0THEIRS"], team="T0OTHER01")) == ""
    assert await installed.told(app_uninstalled(team="T0OTHER01")) == ""


async def test_a_delivery_that_is_refused_for_its_token_tells_too(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error="account_inactive"))
    turn = await outgoing.ask()
    await turn.finish("When you are back.")
    refused: list[str] = []

    async with dispatcher_of(outgoing, on_token_refused=refused.append).running():
        await outgoing.until_stored("waiting", "account_inactive")

    assert refused == ["account_inactive"]


async def test_events_that_slack_holds_back_are_told_with_their_minute(stage: SlackStage) -> None:
    with capture_logs() as logs:
        answered = await stage.sender.once(app_rate_limited(1_518_467_820))

    assert answered.status == 200
    [told] = [log for log in logs if log["log_level"] == "warning"]
    assert told["event"] == "slack events rate limited"
    assert told["minute"] == 1_518_467_820


ENTERPRISE, FIRST, SECOND, STRANGE = "E0GRID001", "T0FIRST01", "T0SECOND1", "T0STRANGE"
GRID = Identity(ENTERPRISE, "Grid", BOT_USER, BOT_ID, FIRST)
ANNA = "U0ANNA001"
SAID = say(f"<@{BOT_USER}> hello", channel="C0GENERAL", team=FIRST)


def who(payload: Mapping[str, object]) -> SlackId:
    incoming = read_event(payload, GRID)
    assert isinstance(incoming, SlackMessage | Left)
    return incoming.who


def in_context(payload: Json, team: str = FIRST, *, shared: bool = False) -> Json:
    context = {"context_team_id": team, "context_enterprise_id": ENTERPRISE, "is_ext_shared_channel": shared}
    return payload | context


@pytest.mark.parametrize("team", [None, FIRST, SECOND, ENTERPRISE])
def test_a_member_is_the_same_person_in_every_event(team: str | None) -> None:
    events = [
        message(SAID),
        app_mention(SAID),
        edited(SAID, "hi"),
        left("C1", user=ANNA),
    ]
    for payload in events:
        payload["event"]["user_team"] = team

    assert {who(in_context(payload)) for payload in events} == {SlackId(ENTERPRISE, ANNA)}


def test_a_member_is_known_by_the_enterprise_or_the_workspace_the_event_came_by() -> None:
    found = []
    for team, context in ((ENTERPRISE, FIRST), (FIRST, SECOND), (SECOND, SECOND), (STRANGE, SECOND)):
        payload = in_context(message(SAID), context, shared=True)
        payload["event"]["user_team"] = team
        found.append(who(payload))

    assert found == [*[SlackId(ENTERPRISE, ANNA)] * 3, SlackId(STRANGE, ANNA)]


@pytest.mark.parametrize(
    ("team", "enterprise", "home"),
    [(FIRST, "", ENTERPRISE), (SECOND, ENTERPRISE, ENTERPRISE), (STRANGE, "E0STRANGE", STRANGE)],
)
async def test_a_command_names_the_same_person_as_a_message(
    outgoing: DeliveryStage, team: str, enterprise: str, home: str
) -> None:
    commands = Commands(services_of(outgoing), GRID, respond)
    code = await outgoing.slack.links.new_code(await outgoing.database.users.get_or_create("anna"))
    body = {"user_id": ANNA, "team_id": team, "enterprise_id": enterprise, "channel_id": "C1", "text": f"link {code}"}

    assert (await commands.answer(body)).text.startswith('You are "anna"')
    assert await outgoing.slack.people.find(SlackId(home, ANNA)) is not None


@pytest.mark.parametrize(("enterprise", "linked_by"), [(ENTERPRISE, "email"), ("E0STRANGE", "guest")])
async def test_a_confirmed_address_is_that_of_a_member_of_the_enterprise(
    outgoing: DeliveryStage, enterprise: str, linked_by: str
) -> None:
    anna = Person(ANNA, "Anna", "anna@example.com", team=SECOND, enterprise=enterprise)
    outgoing.double.workspace.people[ANNA] = anna
    guest = await outgoing.database.users.get_or_create(f"slack:{ENTERPRISE}:{ANNA}")
    await outgoing.rows("insert into slack_users values ($1, $2, $3)", ENTERPRISE, ANNA, guest)

    await Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, GRID, link_by_email=True).run_once()

    assert await outgoing.rows("select linked_by from slack_users") == [(linked_by,)]


def services_of(outgoing: DeliveryStage) -> SlackServices:
    async def report(_owner: UserId, _session: SessionId) -> ContextReport:
        return REPORT

    async def summarize(owner: UserId, session: SessionId, _request: SummaryRequest) -> CompactionResult:
        return CompactionResult(
            CompactionOutcome.ADOPTED, await outgoing.database.sessions.get(owner, session), "", 900, 300
        )

    return SlackServices(outgoing.database, outgoing.slack, report, summarize, outgoing.clock)


async def respond(_url: str, _shown: CommandReply) -> None:
    """Nothing takes long here."""
