"""Assembly of the Slack interface: over HTTP together with the REST routes, or over Socket Mode alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from throughline.assembly.runtime import Runtime
from throughline.domain.errors import NotFound, SettingInvalid
from throughline.settings import Settings
from throughline.slack.config import SlackConfig, SlackHealth, SlackServices
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.open_slack import open_slack


@dataclass(frozen=True, slots=True)
class SlackHttpInterface:
    """Slack's HTTP endpoint, the path at which it is served, and the state of the connection to Slack."""

    path: str
    endpoint: EventsEndpoint
    health: SlackHealth


def slack_config(settings: Settings) -> SlackConfig:
    """Return the configuration of Slack. Deliveries have the concurrency and the leases of a worker's turns."""
    return SlackConfig(
        bot_token=settings.slack_bot_token,
        signing_secret=settings.slack_signing_secret,
        app_token=settings.slack_app_token,
        api_url=settings.slack_api_url,
        link_by_email=settings.slack_link_by_email,
        concurrency=settings.worker_concurrency,
        lease_seconds=settings.lease_seconds,
    )


@asynccontextmanager
async def slack_over_http(runtime: Runtime) -> AsyncGenerator[SlackHttpInterface | None]:
    """Run the Slack interface over HTTP while the context is open, and yield its endpoint.

    Yields None if Slack is not configured or uses Socket Mode only. Raises SettingInvalid for a wrong setting of Slack.
    """
    settings = runtime.settings
    _check_agent(runtime)
    if settings.slack_signing_secret or (settings.slack_bot_token and not settings.slack_app_token):
        health = SlackHealth(runtime.turn_dependencies.clock, is_all=False)
        async with _open(runtime, health, over_http=True) as endpoint:
            yield None if endpoint is None else SlackHttpInterface(PATH, endpoint, health)
    else:
        yield None


@asynccontextmanager
async def slack_over_socket(runtime: Runtime, health: SlackHealth, *, turns: bool) -> AsyncGenerator[asyncio.Event]:
    """Run the Slack interface over Socket Mode while the context is open.

    With `turns`, this process runs turns as well. Yields an event that is set once the claim loop has crashed, so that
    turns are no longer claimed. Raises SettingInvalid for a wrong setting of Slack.
    """
    _check_agent(runtime)
    working = runtime.worker.working() if turns else nullcontext(asyncio.Event())
    async with _open(runtime, health, over_http=False), working as broken:
        yield broken


def _check_agent(runtime: Runtime) -> None:
    """Raise SettingInvalid if the agent configured for Slack does not exist."""
    try:
        runtime.turn_dependencies.agents.get(runtime.settings.slack_agent)
    except NotFound as error:
        raise SettingInvalid(f"SLACK_AGENT: {error.detail}") from None


@asynccontextmanager
async def _open(runtime: Runtime, health: SlackHealth, *, over_http: bool) -> AsyncGenerator[EventsEndpoint | None]:
    settings = runtime.settings
    config = slack_config(settings)
    database, context = runtime.database, runtime.context
    slack = database.open_slack(settings.slack_agent)
    services = SlackServices(database, slack, context.report, context.summarize, runtime.turn_dependencies.clock)
    async with open_slack(config, services, health, runtime.process.name, over_http=over_http) as endpoint:
        yield endpoint
