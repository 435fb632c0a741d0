"""Monitoring of whether the app is still installed.

Slack's events and refusals report that it is not. Slack is then asked until the token is accepted again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from throughline.domain.clock import Clock
from throughline.domain.errors import SettingInvalid, TemporaryError
from throughline.execution.error_boundary import ErrorBoundary
from throughline.execution.running_concurrently import running_concurrently
from throughline.slack.config import Identity, SlackConfig
from throughline.slack.health import SlackHealth
from throughline.slack.setup_check import PAGE, ask_identity

ASK_SECONDS = 60.0
UNINSTALLED, REVOKED = "app_uninstalled", "tokens_revoked"
WHAT_TO_DO = f"install the app again ({PAGE}) and set SLACK_BOT_TOKEN to the token it then has; answers wait for a day"
log = structlog.get_logger(__name__)


class Installation:
    """Monitor that records in `health` when Slack refuses the bot token, and when it accepts the token again."""

    def __init__(
        self, client: AsyncWebClient, config: SlackConfig, identity: Identity, clock: Clock, health: SlackHealth
    ) -> None:
        self._client = client
        self._config = config
        self._identity = identity
        self._clock = clock
        self._health = health
        self._refused = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the monitor while the context is open."""
        async with running_concurrently(self.run, "slack installation"):
            yield

    async def run(self) -> None:
        """Ask Slack at intervals while the token is refused, until cancelled."""
        while True:
            await self._refused.wait()
            await self._clock.sleep(ASK_SECONDS)
            with ErrorBoundary(log.error, task="slack installation"):
                await self._ask()

    async def take(self, body: Mapping[str, object]) -> None:
        """Handle an event about the app. Events of other workspaces, which bolt passes on, are ignored."""
        event = body.get("event")
        if self._identity.team_id not in {body.get("team_id"), body.get("enterprise_id")}:
            return
        if isinstance(event, dict) and (event.get("type") == UNINSTALLED or _names_bot(event.get("tokens"))):
            self.note_refused(str(event["type"]))

    def note_refused(self, word: str) -> None:
        """Record that Slack refuses the bot token. `word` is Slack's error code, or the type of the event that said so.

        Logged once until the token is accepted again.
        """
        if not self._refused.is_set():
            log.warning("slack bot token rejected", reason=word, hint=WHAT_TO_DO)
        self._health.note_token_refused(word)
        self._refused.set()

    async def _ask(self) -> None:
        try:
            await ask_identity(self._client, self._config)
        except (SettingInvalid, TemporaryError):
            return
        self._refused.clear()
        self._health.note_token_accepted()
        log.info("slack bot token accepted again")


def _names_bot(tokens: object) -> bool:
    """Return whether a bot's token is among the revoked tokens; tokens of people do not matter."""
    return isinstance(tokens, dict) and bool(tokens.get("bot"))
