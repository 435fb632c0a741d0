"""The Slack interface in a process: over HTTP beside the routes, or over Socket Mode alone."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from throughline.domain.service_status import ProcessKind
from throughline.http.app import Endpoint, FrontEndHealth, FrontEndProcess, Program
from throughline.slack.config import SlackConfig, SlackHealth, SlackServices
from throughline.slack.http import PATH, EventsEndpoint
from throughline.slack.open_slack import open_slack
from throughline.slack.settings import SlackSettings
from throughline.slack.store.database import slack_database

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
