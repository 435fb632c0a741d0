"""Identification of the bot: at start, Slack is asked for the bot's user id and workspace.

Wrong settings end the start. If Slack does not answer, it is asked again in the background.
"""

import asyncio
from contextlib import suppress

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from throughline.domain.clock import Clock
from throughline.domain.errors import SettingInvalid
from throughline.execution.error_boundary import ErrorBoundary
from throughline.slack.config import Identity, SlackConfig
from throughline.slack.health import SlackHealth
from throughline.slack.setup_check import ask_identity, check_app_token, check_settings
from throughline.slack.slack_errors import SlackUnsure

START_SECONDS = 5.0
"""Seconds that the start waits for each answer of Slack, so that the rest of the service is not delayed."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
AWAY = "Slack does not answer at {url} (SLACK_API_URL). The service tries again."
log = structlog.get_logger(__name__)


class Identification:
    """Query of the bot's identity from Slack. It records in `health` why the identity is not known yet."""

    def __init__(self, client: AsyncWebClient, config: SlackConfig, clock: Clock, health: SlackHealth) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._health = health
        self._logged_reason = ""
        self.first_address = ""
        """Address for the first connection of Socket Mode, valid for a short time; '' if Slack was not asked."""

    async def at_start(self, *, over_http: bool) -> Identity | None:
        """Return the bot's identity, None if Slack does not answer now.

        Raises SettingInvalid if a token, a scope or the signing secret is missing or wrong.
        """
        check_settings(self._config, over_http=over_http)
        try:
            async with asyncio.timeout(START_SECONDS):
                identity = await ask_identity(self._client, self._config)
        except (SlackUnsure, TimeoutError):
            self._set_reason(self._away())
            return None
        if not over_http:
            await self._check_app_token()
        return identity

    async def until_known(self) -> Identity:
        """Ask Slack with growing pauses until it returns the bot's identity.

        Wrong settings are retried as well, because they may be corrected in Slack.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            with ErrorBoundary(log.error, task="slack identification"):
                try:
                    return await ask_identity(self._client, self._config)
                except SlackUnsure:
                    self._set_reason(self._away())
                except SettingInvalid as error:
                    self._set_reason(error.detail)
                    pause = LONGEST_PAUSE_SECONDS

    async def _check_app_token(self) -> None:
        """Check the app token, and keep the address that Slack returns for it in `first_address`.

        Raises SettingInvalid if Slack refuses the token. If Slack does not answer, nothing is raised: opening the
        connection will show whether the token is valid.
        """
        with suppress(SlackUnsure, TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                self.first_address = await check_app_token(self._client, self._config)

    def _away(self) -> str:
        return AWAY.format(url=self._client.base_url)

    def _set_reason(self, reason: str) -> None:
        """Record why the identity is not known, and log the reason if it has changed."""
        self._health.set_disconnected(reason)
        if reason != self._logged_reason:
            self._logged_reason = reason
            log.warning("slack start delayed", reason=reason)
