"""Puts the Slack door together, over HTTP beside the REST routes, or over Socket Mode by itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from app.context.explain import ContextReport
from app.db.database import Database
from app.domain.ids import SessionId, UserId
from app.settings import Settings
from app.slack.config import SlackConfig
from app.slack.door import open_slack
from app.slack.http import PATH, EventsEndpoint
from app.slack.services import SlackServices
from app.turn.compact_result import CompactionResult
from app.turn.context_report import report_context
from app.turn.state import TurnParts
from app.turn.summarize_now import summarize_now
from app.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class SlackShare:
    """What of a process the door shares; `name` is the process's."""

    settings: Settings
    database: Database
    parts: TurnParts
    worker: Worker
    name: str


@dataclass(frozen=True, slots=True)
class HttpDoor:
    """An endpoint and the path it is served at."""

    path: str
    endpoint: EventsEndpoint


@asynccontextmanager
async def slack_over_http(share: SlackShare) -> AsyncGenerator[HttpDoor | None]:
    """Yield where to serve Slack's events, None where Slack is not set up, or for Socket Mode only."""
    settings = share.settings
    if settings.slack_signing_secret or (settings.slack_bot_token and not settings.slack_app_token):
        async with _open(share, over_http=True) as endpoint:
            yield None if endpoint is None else HttpDoor(PATH, endpoint)
    else:
        yield None


@asynccontextmanager
async def slack_over_socket(share: SlackShare, *, turns: bool) -> AsyncGenerator[None]:
    """Take part in Slack inside the block, with `turns` in this very process. Raises SettingInvalid."""
    async with _open(share, over_http=False), share.worker.working() if turns else nullcontext():
        yield


@asynccontextmanager
async def _open(share: SlackShare, *, over_http: bool) -> AsyncGenerator[EventsEndpoint | None]:
    settings = share.settings
    share.parts.agents.get(settings.slack_agent)  # a name that no agent has fails the start
    config = SlackConfig(
        bot_token=settings.slack_bot_token,
        signing_secret=settings.slack_signing_secret,
        app_token=settings.slack_app_token,
        api_url=settings.slack_api_url,
        link_by_email=settings.slack_link_by_email,
    )
    async with open_slack(config, _services(share), share.name, over_http=over_http) as door:
        yield door.endpoint


def _services(share: SlackShare) -> SlackServices:
    database, parts = share.database, share.parts

    async def report(owner_id: UserId, session_id: SessionId) -> ContextReport:
        return await report_context(parts, await database.sessions.get(owner_id, session_id))

    async def summarize(owner_id: UserId, session_id: SessionId, instructions: str) -> CompactionResult:
        async with share.worker.occupied(owner_id):
            return await summarize_now(parts, await database.sessions.get(owner_id, session_id), instructions)

    slack = database.open_slack(share.settings.slack_agent)
    return SlackServices(database, slack, report, summarize, parts.clock)
