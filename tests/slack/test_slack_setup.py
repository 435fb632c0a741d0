"""What an operator is told at start, and the manifest that leaves little to do wrong."""

import json

import pytest

from app.domain.errors import SettingInvalid
from app.slack.bolt import make_client, silent_logger
from app.slack.config import SlackConfig
from app.slack.incoming import read_incoming
from app.slack.manifest import manifest
from app.slack.setup_check import BOT_SCOPES, identify
from fakes.manual_clock import ManualClock
from fakes.slack_double import APP_TOKEN, BOT_TOKEN, BOT_USER, SIGNING_SECRET, TEAM, Failure, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.slack_stage import IDENTITY


async def told(config: SlackConfig, *, over_http: bool = True) -> str:
    with pytest.raises(SettingInvalid) as caught:
        await identify(make_client(config, silent_logger()), config, ManualClock(), over_http=over_http)
    for secret in (config.bot_token, config.signing_secret, config.app_token):
        assert not secret or secret not in caught.value.detail
    return caught.value.detail


def config_of(slack: SlackDouble, *, bot: str = BOT_TOKEN, signing: str = SIGNING_SECRET, app: str = "") -> SlackConfig:
    return SlackConfig(bot, signing, app, slack.url)


async def test_the_bot_learns_who_it_is(slack: SlackDouble) -> None:
    config = config_of(slack)

    found = await identify(make_client(config, silent_logger()), config, ManualClock(), over_http=True)

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
    config = config_of(slack, app=APP_TOKEN)
    found = await identify(make_client(config, silent_logger()), config, ManualClock(), over_http=False)
    assert found.team_id == TEAM


async def test_missing_scopes_are_named(slack: SlackDouble) -> None:
    slack.workspace.scopes = tuple(scope for scope in BOT_SCOPES if scope not in {"commands", "reactions:read"})

    assert "lacks the bot scopes commands, reactions:read." in await told(config_of(slack))


async def test_a_slack_in_trouble_is_asked_again_and_one_out_of_reach_is_told(slack: SlackDouble) -> None:
    slack.rules.fail("auth.test", Failure(status=503), Failure(drops=True), Failure(status=429, retry_after=1))
    config = config_of(slack)
    found = await identify(make_client(config, silent_logger()), config, ManualClock(), over_http=True)
    assert found.team_id == TEAM

    away = SlackConfig(BOT_TOKEN, SIGNING_SECRET, "", "http://127.0.0.1:9/api/")
    assert "Slack does not answer" in await told(away)


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
        assert read_incoming(body, IDENTITY) is None
    said = message(say("x"))
    del said["event"]["ts"]
    assert read_incoming(said, IDENTITY) is None
