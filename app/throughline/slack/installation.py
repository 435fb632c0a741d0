"""Whether the app is still installed: told by Slack's events and refusals, then asked until it is again."""

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
    """Notes in `health` that the bot token is refused, and that it holds again."""

    def __init__(
        self, client: AsyncWebClient, config: SlackConfig, identity: Identity, clock: Clock, health: SlackHealth
    ) -> None:
        """Ask through `client`."""
        self._client = client
        self._config = config
        self._identity = identity
        self._clock = clock
        self._health = health
        self._refused = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Ask inside the block, while the token is refused."""
        async with running_concurrently(self.run(), "slack installation"):
            yield

    async def run(self) -> None:
        """Ask, while the token is refused, until cancelled."""
        while True:
            await self._refused.wait()
            await self._clock.sleep(ASK_SECONDS)
            with ErrorBoundary(log.error, "asking slack for the installation broke"):
                await self._ask()

    async def take(self, body: Mapping[str, object]) -> None:
        """Take an event about the app; bolt lets those of all workspaces through."""
        event = body.get("event")
        if self._identity.team_id not in {body.get("team_id"), body.get("enterprise_id")}:
            return
        if isinstance(event, dict) and (event.get("type") == UNINSTALLED or _names_bot(event.get("tokens"))):
            self.note_refused(str(event["type"]))

    def note_refused(self, word: str) -> None:
        """Note that the token does not hold, by Slack's word for it; said once until it does again."""
        if not self._refused.is_set():
            log.warning("slack does not accept the bot token", reason=word, hint=WHAT_TO_DO)
        self._health.note_token_refused(word)
        self._refused.set()

    async def _ask(self) -> None:
        try:
            await ask_identity(self._client, self._config)
        except (SettingInvalid, TemporaryError):
            return
        self._refused.clear()
        self._health.note_token_accepted()
        log.info("slack accepts the bot token again")


def _names_bot(tokens: object) -> bool:
    """Whether a bot's token is among those revoked; people's are nothing to us."""
    return isinstance(tokens, dict) and bool(tokens.get("bot"))
