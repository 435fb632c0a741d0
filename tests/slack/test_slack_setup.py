"""What an operator is told at start, and the manifest that leaves little to do wrong."""

import json

import pytest
from structlog.testing import capture_logs

from fakes.manual_clock import ManualClock
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, BOT_USER, SIGNING_SECRET, TEAM, Failure, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import IDENTITY
from throughline.domain.errors import SettingInvalid
from throughline.slack.bolt import make_client, silent_logger
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.read_event import read_event
from throughline.slack.setup_check import BOT_SCOPES, LEAVING_SCOPES, Identification, manifest


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
