"""The Slack door as a whole: opened by `assembly/`, for events over HTTP or over Socket Mode."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import structlog
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from app.slack.answer_sender import AnswerSender
from app.slack.bolt import Listeners, Shown, make_bolt, silent_logger
from app.slack.calls import SlackCalls
from app.slack.commands import Commands
from app.slack.config import Identity, SlackConfig
from app.slack.dispatcher import Dispatcher, DispatcherConfig
from app.slack.health import SlackHealth
from app.slack.http import EventsEndpoint
from app.slack.installation import Installation
from app.slack.intake import Intake
from app.slack.services import SlackServices
from app.slack.setup_check import identify
from app.slack.socket_mode import SocketMode
from app.slack.upkeep import Upkeep
from app.slack.writer import DeliveryServices

CALL_SECONDS = 20
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SlackDoor:
    """The open door: who we are, and the endpoint for events over HTTP."""

    identity: Identity
    endpoint: EventsEndpoint | None


@asynccontextmanager
async def open_slack(
    config: SlackConfig, services: SlackServices, health: SlackHealth, worker: str, *, over_http: bool
) -> AsyncGenerator[SlackDoor]:
    """Deliver answers inside the block, and take events: at the endpoint, or over Socket Mode, as `health` tells.

    Raises SettingInvalid where a token, a scope or the signing secret is missing or wrong.
    """
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS)) as session:
        parts = _Parts(config, services, health, worker, _client(config, session))
        identity = await identify(parts.client, config, services.clock, over_http=over_http)
        async with _working(parts, identity) as bolt, _hearing(parts, bolt, over_http=over_http) as endpoint:
            yield SlackDoor(identity, endpoint)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the door is made of before it is known who the bot is."""

    config: SlackConfig
    services: SlackServices
    health: SlackHealth
    worker: str
    client: AsyncWebClient


@asynccontextmanager
async def _working(parts: _Parts, identity: Identity) -> AsyncGenerator[AsyncApp]:
    """Deliver and look after things inside the block; yields what takes events."""
    config, services = parts.config, parts.services
    calls = SlackCalls(parts.client, services.clock)
    commands = Commands(services, identity, _respond)
    installation = Installation(parts.client, config, identity, services.clock, parts.health)
    intake = Intake(services.slack, identity, commands.stop_by_sign)
    upkeep = Upkeep(services.slack, calls, services.clock, identity, link_by_email=config.link_by_email)
    delivery_services = DeliveryServices(services.slack.outbox, calls, services.clock, identity)
    dispatcher = Dispatcher(
        services.slack.outbox,
        AnswerSender(services.database, delivery_services),
        DispatcherConfig(parts.worker, config.concurrency),
        installation.note_refused,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(commands.close)
        for part in (installation, dispatcher, upkeep):
            await stack.enter_async_context(part.running())
        log.info("slack knows the bot", workspace=identity.team_name, team=identity.team_id)
        yield make_bolt(config, identity, Listeners(intake.take, commands.answer, installation.take))


@asynccontextmanager
async def _hearing(parts: _Parts, bolt: AsyncApp, *, over_http: bool) -> AsyncGenerator[EventsEndpoint | None]:
    """Hand events to `bolt` inside the block: those that come over Socket Mode, or to the endpoint."""
    config, clock = parts.config, parts.services.clock
    if over_http:
        parts.health.note_heard()
        yield EventsEndpoint(bolt, config.signing_secret, clock)
    else:
        async with SocketMode(bolt, config, clock, parts.health).running():
            yield None


def _client(config: SlackConfig, session: aiohttp.ClientSession) -> AsyncWebClient:
    """One connection pool for all calls; nothing is tried again behind our back."""
    return AsyncWebClient(
        token=config.bot_token, base_url=config.api_url, session=session, logger=silent_logger(), retry_handlers=[]
    )


async def _respond(url: str, shown: Shown) -> None:
    """Send to a command's `response_url`; what cannot be sent is of no use later."""
    client = AsyncWebhookClient(url, logger=silent_logger(), retry_handlers=[])
    try:
        await client.send(text=shown.text, blocks=list(shown.blocks) or None, response_type="ephemeral")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("slack command's answer could not be sent", error=type(error).__name__)
