"""What is told of the app itself: that it was uninstalled, that its token is refused, that events are held back."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from fakes.api_stage import WallClock
from fakes.manual_clock import PassingClock
from fakes.provider_double.json_types import Json
from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import BOT_TOKEN, BOT_USER, SIGNING_SECRET, Failure, Sender, SlackDouble
from fakes.slack_double.payloads import app_rate_limited, app_uninstalled, tokens_revoked
from fakes.slack_stage import IDENTITY, SlackStage, no_command, served_asgi
from fakes.waiting import until
from throughline.slack.bolt import Listeners, make_bolt, make_client, silent_logger
from throughline.slack.config import SlackConfig, SlackHealth
from throughline.slack.http import EventsEndpoint
from throughline.slack.setup_check import Installation


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
    installation = Installation(make_client(config, silent_logger()), config, IDENTITY, clock, health)
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


async def test_events_that_slack_holds_back_are_told_with_their_minute(door: SlackStage) -> None:
    with capture_logs() as logs:
        answered = await door.sender.once(app_rate_limited(1_518_467_820))

    assert answered.status == 200
    [told] = [log for log in logs if log["log_level"] == "warning"]
    assert told["event"] == "slack events rate limited"
    assert told["minute"] == 1_518_467_820
