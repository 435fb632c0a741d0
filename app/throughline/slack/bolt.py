"""The bolt application: it verifies requests, selects the listener and acknowledges.

HTTP and Socket Mode use the same application.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from throughline.domain.errors import TemporaryError, ThroughlineError, traceback_lines
from throughline.slack.config import Identity, SlackConfig

EVENTS_OF_APP = ("app_uninstalled", "tokens_revoked")
EVERYTHING = re.compile(".+")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CommandReply:
    """Reply to a command that only its sender sees. `blocks` are Block Kit; `text` is shown where blocks cannot be."""

    text: str
    blocks: Sequence[dict[str, object]] = ()


async def _ignore(_body: Mapping[str, object]) -> None:
    """Ignore the event."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Handlers of Slack's requests.

    `take` handles events of this workspace. `take_of_app` handles events about the app itself, from any workspace.
    `command` replies to `/agent` at once; results that take longer are sent later. `click` handles clicks on buttons.
    """

    take: Callable[[Mapping[str, object]], Awaitable[None]]
    command: Callable[[Mapping[str, object]], Awaitable[CommandReply]]
    take_of_app: Callable[[Mapping[str, object]], Awaitable[None]] = _ignore
    click: Callable[[Mapping[str, object]], Awaitable[None]] = _ignore


def silent_logger() -> logging.Logger:
    """Return a logger for bolt and the SDK that writes nothing: at INFO and WARNING they log whole messages."""
    logger = logging.Logger("throughline.slack.silent", level=logging.CRITICAL + 1)  # noqa: LOG001  # not to be found by name
    logger.disabled = True
    return logger


def make_client(config: SlackConfig, logger: logging.Logger) -> AsyncWebClient:
    """Return a client of Slack's Web API that never retries by itself: only its caller knows what may be repeated."""
    return AsyncWebClient(token=config.bot_token, base_url=config.api_url, logger=logger, retry_handlers=[], timeout=20)


def make_bolt(config: SlackConfig, identity: Identity, listeners: Listeners) -> AsyncApp:
    """Return the bolt application.

    Listeners run before the acknowledgement. If a listener raises, the event is not acknowledged.
    """
    logger = silent_logger()

    async def authorize(team_id: str | None, enterprise_id: str | None) -> AuthorizeResult | None:
        """Authorize with the identity learned at start, so that no call to Slack delays an acknowledgement."""
        if identity.team_id not in {team_id, enterprise_id}:
            log.warning("slack event of other workspace ignored", team=team_id)
            return None
        return AuthorizeResult(
            enterprise_id=enterprise_id,
            team_id=team_id,
            bot_token=config.bot_token,
            bot_id=identity.bot_id,
            bot_user_id=identity.bot_user_id,
        )

    app = AsyncApp(
        logger=logger,
        name="throughline",
        process_before_response=True,
        signing_secret=config.signing_secret,
        authorize=authorize,  # type: ignore[arg-type]  # None is bolt's value for "not authorized"
        client=make_client(config, logger),
        ssl_check_enabled=False,
    )
    _listen(app, listeners)
    return app


def _listen(app: AsyncApp, listeners: Listeners) -> None:
    async def on_event(body: dict[str, object]) -> None:
        await listeners.take(body)

    async def on_event_of_app(body: dict[str, object]) -> None:
        await listeners.take_of_app(body)

    async def on_command(ack: AsyncAck, command: dict[str, object]) -> None:
        shown = await listeners.command(command)
        await ack(text=shown.text, blocks=list(shown.blocks) or None)

    async def on_action(ack: AsyncAck, body: dict[str, object]) -> None:
        await listeners.click(body)
        await ack()

    app.use(_note_held_back)
    for kind in EVENTS_OF_APP:
        app.event(kind)(on_event_of_app)
    app.event(EVERYTHING)(on_event)
    app.command(EVERYTHING)(on_command)
    app.action(EVERYTHING)(on_action)
    app.error(_on_error)


async def _note_held_back(body: dict[str, object], next_: Callable[[], Awaitable[BoltResponse]]) -> BoltResponse:
    """Log that Slack holds events back because of its rate limit.

    Slack reports this in a body of a type of its own, which matches no listener. See
    https://docs.slack.dev/apis/events-api/#rate-limiting .
    """
    if body.get("type") != "app_rate_limited":
        return await next_()
    minute = body.get("minute_rate_limited")
    log.warning(
        "slack events rate limited",
        minute=minute if isinstance(minute, int) else None,
        hint="Slack holds events of this workspace back: too many, or too many not acknowledged. Messages of this "
        "minute may never arrive.",
    )
    return BoltResponse(status=200, body="")


async def _on_error(error: Exception) -> BoltResponse:
    """Log the error and leave the event unacknowledged, so that Slack sends it again."""
    if isinstance(error, ThroughlineError):
        log.warning("slack event not stored, not acknowledged", error=error.code)
    else:
        log.error("slack request handler failed", error=type(error).__name__, where=traceback_lines(error))
    return BoltResponse(status=503 if isinstance(error, TemporaryError) else 500, body="")
