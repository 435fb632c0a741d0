"""The Slack door as a whole: opened by `assembly/`, for events over HTTP or over Socket Mode."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
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
    logger = silent_logger()
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        client = _client(config, session, logger)
        identity = await identify(client, config, services.clock, over_http=over_http)
        calls = SlackCalls(client, services.clock)
        commands = Commands(services, identity, _responder(logger))
        stack.push_async_callback(commands.close)
        bolt = _bolt(config, identity, services, commands)
        await stack.enter_async_context(_dispatcher(config, identity, services, calls, worker).running())
        upkeep = Upkeep(services.slack, calls, services.clock, identity, link_by_email=config.link_by_email)
        await stack.enter_async_context(upkeep.running())
        if not over_http:
            await stack.enter_async_context(SocketMode(bolt, config, services.clock, health).running())
        else:
            health.note_heard()
        log.info("slack knows the bot", workspace=identity.team_name, team=identity.team_id)
        yield SlackDoor(identity, EventsEndpoint(bolt, config.signing_secret, services.clock) if over_http else None)


def _client(config: SlackConfig, session: aiohttp.ClientSession, logger: logging.Logger) -> AsyncWebClient:
    """One connection pool for all calls; nothing is tried again behind our back."""
    return AsyncWebClient(
        token=config.bot_token, base_url=config.api_url, session=session, logger=logger, retry_handlers=[]
    )


def _bolt(config: SlackConfig, identity: Identity, services: SlackServices, commands: Commands) -> AsyncApp:
    intake = Intake(services.slack, identity, commands.stop_by_sign)
    return make_bolt(config, identity, Listeners(intake.take, commands.answer))


def _dispatcher(
    config: SlackConfig, identity: Identity, services: SlackServices, calls: SlackCalls, worker: str
) -> Dispatcher:
    delivery_services = DeliveryServices(services.slack.outbox, calls, services.clock, identity)
    return Dispatcher(
        services.slack.outbox,
        AnswerSender(services.database, delivery_services),
        DispatcherConfig(worker, config.concurrency),
    )


def _responder(logger: logging.Logger) -> Callable[[str, Shown], Awaitable[None]]:
    async def respond(url: str, shown: Shown) -> None:
        """Send to a command's `response_url`; what cannot be sent is of no use later."""
        client = AsyncWebhookClient(url, logger=logger, retry_handlers=[])
        try:
            await client.send(text=shown.text, blocks=list(shown.blocks) or None, response_type="ephemeral")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("slack command's answer could not be sent", error=type(error).__name__)

    return respond
