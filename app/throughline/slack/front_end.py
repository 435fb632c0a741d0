"""The Slack interface in a process: over HTTP beside the routes, or over Socket Mode alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import structlog
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from throughline.domain.service_status import ProcessKind
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.http.app import Endpoint, FrontEndHealth, FrontEndProcess, Program
from throughline.slack.answers.answer_sender import AnswerSender
from throughline.slack.answers.decisions import ClickHandler
from throughline.slack.answers.dispatcher import Dispatcher, DispatcherConfig
from throughline.slack.answers.sent_messages import DeliveryServices
from throughline.slack.bolt import CommandReply, Listeners, make_bolt, silent_logger
from throughline.slack.commands import Commands
from throughline.slack.config import NOT_YET, Identity, SlackConfig, SlackHealth, SlackServices
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.maintenance import Maintenance
from throughline.slack.read_event import EventStorage
from throughline.slack.settings import SlackSettings
from throughline.slack.setup_check import Identification, TokenMonitor
from throughline.slack.socket_mode import SocketMode
from throughline.slack.store.database import slack_database
from throughline.slack.web_api import SlackWebApi

# HTTP session for all calls to Slack: one connection pool, a time limit, and a size limit for each response. Slack's
# SDK reads every response completely. A server behind SLACK_API_URL, or a proxy, might never end a response.

CALL_SECONDS = 20
MOST_BYTES = 32_000_000
"""Largest response in bytes: a page of 200 messages of 40,000 characters each, escaped, with their metadata."""


class BoundedResponse(aiohttp.ClientResponse):
    """HTTP response of at most `MOST_BYTES`, counted after decompression."""

    async def read(self) -> bytes:
        """Return the body. If it is too long, close the connection and raise ClientPayloadError."""
        if self._body is None:
            body = bytearray()
            async for piece in self.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    self.close()
                    raise aiohttp.ClientPayloadError(f"Slack sent more than {MOST_BYTES:,} bytes.")
            self._body = bytes(body)
        return await super().read()


def bounded_session() -> aiohttp.ClientSession:
    """Return a session that limits the size of every response. The caller closes the session."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS), response_class=BoundedResponse)


log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_slack(
    config: SlackConfig, services: SlackServices, health: SlackHealth, worker: str, *, over_http: bool
) -> AsyncGenerator[EventsEndpoint | None]:
    """Run the Slack interface while the context is open: at once, or as soon as Slack answers.

    `health` records its state. Yields the endpoint for events over HTTP, None for Socket Mode. Raises SettingInvalid if
    a token, a scope or the signing secret is missing or wrong.
    """
    async with bounded_session() as session:
        client = _client(config, session)
        asking = Identification(client, config, services.clock, health)
        identity = await asking.at_start(over_http=over_http)
        endpoint = EventsEndpoint(None, config.signing_secret, services.clock) if over_http else None
        dependencies = _Dependencies(config, services, health, worker, client, endpoint, asking.first_address)
        async with (
            _open_when_identified(dependencies, asking) if identity is None else _take_part(dependencies, identity)
        ):
            yield endpoint


@dataclass(frozen=True, slots=True)
class _Dependencies:
    """Dependencies of the interface before the bot's identity is known. Without an endpoint, it uses Socket Mode."""

    config: SlackConfig
    services: SlackServices
    health: SlackHealth
    worker: str
    client: AsyncWebClient
    endpoint: EventsEndpoint | None
    first_address: str


@asynccontextmanager
async def _open_when_identified(dependencies: _Dependencies, asking: Identification) -> AsyncGenerator[None]:
    """Run the interface while the context is open, as soon as Slack has answered who the bot is.

    The wait for that answer happens in the background.
    """

    async def take_part() -> None:
        with ErrorBoundary(log.error, task="slack interface"):
            async with _take_part(dependencies, await asking.until_known()):
                await asyncio.Event().wait()  # until the block ends

    async with running_concurrently(take_part, "take part in slack"):
        yield


@asynccontextmanager
async def _take_part(dependencies: _Dependencies, identity: Identity) -> AsyncGenerator[None]:
    async with _run_background(dependencies, identity) as bolt, _receive_events(dependencies, bolt):
        yield


@asynccontextmanager
async def _run_background(dependencies: _Dependencies, identity: Identity) -> AsyncGenerator[AsyncApp]:
    """Run deliveries and maintenance while the context is open. Yields the application that takes events."""
    config, services = dependencies.config, dependencies.services
    calls = SlackWebApi(dependencies.client, services.clock)
    commands = Commands(services, identity, _respond)
    installation = TokenMonitor(dependencies.client, config, identity, services.clock, dependencies.health)
    storage = EventStorage(services.slack, identity, commands.stop_by_sign)
    maintenance = Maintenance(services.slack, calls, services.clock, identity, link_by_email=config.link_by_email)
    decisions = ClickHandler(services, calls, identity)
    delivery_services = DeliveryServices(services.slack, calls, services.clock, identity, services.database.citations)
    dispatcher = Dispatcher(
        services.slack.outbox,
        AnswerSender(services.database.followed_runs, delivery_services),
        DispatcherConfig(dependencies.worker, config.concurrency, config.lease_seconds),
        installation.note_refused,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(commands.close)
        stack.push_async_callback(decisions.close)
        for part in (installation, dispatcher, maintenance):
            await stack.enter_async_context(part.running())
        log.info("slack bot identified", workspace=identity.team_name, team=identity.team_id)
        listeners = Listeners(storage.store, commands.answer, installation.take, decisions.handle)
        yield make_bolt(config, identity, listeners)


@asynccontextmanager
async def _receive_events(dependencies: _Dependencies, bolt: AsyncApp) -> AsyncGenerator[None]:
    """Pass events to `bolt` while the context is open, from the endpoint or over Socket Mode."""
    if dependencies.endpoint is not None:
        dependencies.endpoint.open(bolt)
        dependencies.health.set_connected()
        yield
    else:
        dependencies.health.set_disconnected(NOT_YET)
        clock, health = dependencies.services.clock, dependencies.health
        async with SocketMode(bolt, dependencies.config, clock, health, dependencies.first_address).running():
            yield


def _client(config: SlackConfig, session: aiohttp.ClientSession) -> AsyncWebClient:
    """Return a Slack client with one connection pool for all calls. It never retries by itself."""
    return AsyncWebClient(
        token=config.bot_token, base_url=config.api_url, session=session, logger=silent_logger(), retry_handlers=[]
    )


async def _respond(url: str, shown: CommandReply) -> None:
    """Send the late reply of a command that is over to its `response_url`. A failure is only logged."""
    try:
        async with bounded_session() as session:
            client = AsyncWebhookClient(url, session=session, logger=silent_logger(), retry_handlers=[])
            await client.send(text=shown.text, blocks=list(shown.blocks) or None, response_type="ephemeral")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("late slack command reply not delivered", error=type(error).__name__)


TITLE = "Slack"


def slack_config(settings: SlackSettings, *, concurrency: int, lease_seconds: float) -> SlackConfig:
    """Return the configuration of Slack. Deliveries have the concurrency and the leases of a worker's turns."""
    return SlackConfig(
        bot_token=settings.slack_bot_token,
        signing_secret=settings.slack_signing_secret,
        app_token=settings.slack_app_token,
        api_url=settings.slack_api_url,
        link_by_email=settings.slack_link_by_email,
        concurrency=concurrency,
        lease_seconds=lease_seconds,
    )


@asynccontextmanager
async def open_endpoint(process: FrontEndProcess) -> AsyncGenerator[Endpoint | None]:
    """Run the Slack interface over HTTP while the context is open, and yield its endpoint.

    Yields None if Slack is not configured or uses Socket Mode only. Raises SettingInvalid for a wrong setting of Slack.
    """
    settings = _settings(process)
    if settings.slack_signing_secret or (settings.slack_bot_token and not settings.slack_app_token):
        health = SlackHealth(process.clock, is_all=False)
        async with _open(process, health, over_http=True) as endpoint:
            yield None if endpoint is None else Endpoint(TITLE, PATH, endpoint, health)
    else:
        yield None


@asynccontextmanager
async def _over_socket(process: FrontEndProcess, health: FrontEndHealth) -> AsyncGenerator[None]:
    """Run the Slack interface over Socket Mode while the context is open. Raises SettingInvalid for a wrong setting."""
    assert isinstance(health, SlackHealth), "SOCKET_MODE makes it"
    async with _open(process, health, over_http=False):
        yield


SOCKET_MODE = Program(TITLE, ProcessKind.SLACK, lambda clock: SlackHealth(clock, is_all=True), _over_socket)


@asynccontextmanager
async def _open(
    process: FrontEndProcess, health: SlackHealth, *, over_http: bool
) -> AsyncGenerator[EventsEndpoint | None]:
    database, context, settings = process.database, process.context, _settings(process)
    config = slack_config(settings, concurrency=process.concurrency, lease_seconds=process.lease_seconds)
    slack = slack_database(database, settings.slack_agent)
    services = SlackServices(database, slack, context.report, context.summarize, process.clock)
    async with open_slack(config, services, health, process.name, over_http=over_http) as endpoint:
        yield endpoint


def _settings(process: FrontEndProcess) -> SlackSettings:
    assert isinstance(process.settings, SlackSettings), "a program's settings have a section of each front end"
    return process.settings
