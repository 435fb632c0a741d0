"""Checks of the Slack setup: tokens, scopes and the bot's identity. Errors are explained in a sentence."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from throughline.domain.basic_types import Clock
from throughline.domain.errors import SettingInvalid, TemporaryError
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.slack.config import Identity, SlackConfig, SlackHealth
from throughline.slack.http import PATH
from throughline.slack.web_api import TOKEN_REFUSED, SlackUnsure, will_pass, word_of

BOT_SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "chat:write",
    "commands",
    "groups:history",
    "im:history",
    "mpim:history",
    "reactions:read",
    "users:read",
)
EMAIL_SCOPE = "users:read.email"
LEAVING_SCOPES = ("channels:read", "groups:read")
"""Scopes for learning who leaves a channel. They are optional, because earlier installations lack them."""

PAGE = "https://api.slack.com/apps"
SECRET_LENGTH = 32
log = structlog.get_logger(__name__)


def check_settings(config: SlackConfig, *, over_http: bool) -> None:
    """Raise SettingInvalid for settings that cannot work, without asking Slack."""
    if not config.bot_token.startswith("xoxb-"):
        raise SettingInvalid(
            f"SLACK_BOT_TOKEN {_state(config.bot_token, 'xoxb-')}. It stands on the app's page ({PAGE}) under "
            "OAuth & Permissions, once the app is installed to the workspace."
        )
    if over_http and len(config.signing_secret) != SECRET_LENGTH:
        length = len(config.signing_secret)
        found = f"has {length} characters instead of {SECRET_LENGTH}" if length else "is not set"
        raise SettingInvalid(
            f"SLACK_SIGNING_SECRET {found}. Set it to the signing secret on the app's page ({PAGE}) under Basic "
            f"Information, App Credentials: {SECRET_LENGTH} characters. To go on without Slack, unset SLACK_BOT_TOKEN."
        )
    if not over_http and not config.app_token.startswith("xapp-"):
        raise SettingInvalid(
            f"SLACK_APP_TOKEN {_state(config.app_token, 'xapp-')}. Socket Mode needs an app-level token with the scope "
            f"connections:write: on the app's page ({PAGE}) under Basic Information, App-Level Tokens."
        )


async def ask_identity(client: AsyncWebClient, config: SlackConfig) -> Identity:
    """Ask Slack once for the bot's identity, and check the granted scopes.

    Raises SettingInvalid if Slack refuses or scopes are missing, SlackUnsure if Slack does not answer.
    """
    try:
        response = await client.auth_test()
    except SlackApiError as error:
        if will_pass(error):
            raise SlackUnsure(f"auth.test: {word_of(error) or 'not readable'}.") from None
        raise _refused(word_of(error)) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SlackUnsure(f"auth.test: {type(error).__name__}.") from None
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = _Answer(_data(response.data), headers.get("x-oauth-scopes", ""))
    _check_scopes(answer.scopes, config)
    _report_missing_scopes(answer.scopes)
    return answer.identity


async def check_app_token(client: AsyncWebClient, config: SlackConfig) -> str:
    """Check that Socket Mode may be used. Return an address for one connection, to be opened soon.

    Raises SettingInvalid if Slack refuses the token, SlackUnsure if Slack does not answer.
    """
    try:
        return str((await client.apps_connections_open(app_token=config.app_token))["url"])
    except SlackApiError as error:
        if will_pass(error):
            raise SlackUnsure(f"apps.connections.open: {word_of(error) or 'not readable'}.") from None
        raise SettingInvalid(
            f"Slack does not accept SLACK_APP_TOKEN ({word_of(error)}). It has to be an app-level token "
            f"with the scope connections:write, and Socket Mode has to be switched on ({PAGE})."
        ) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise SlackUnsure(f"apps.connections.open: {type(error).__name__}.") from None


class _Answer:
    """The answer of `auth.test`: the granted scopes and the bot's identity."""

    def __init__(self, data: dict[str, object], scopes: str) -> None:
        enterprise = str(data.get("enterprise_id") or "") if data.get("is_enterprise_install") else ""
        workspace = str(data["team_id"])
        self.scopes = frozenset(scope.strip() for scope in scopes.split(",") if scope.strip())
        self.identity = Identity(
            team_id=enterprise or workspace,
            team_name=str(data.get("team", "")),
            bot_user_id=str(data["user_id"]),
            bot_id=str(data.get("bot_id") or ""),
            workspace_id=workspace,
            url=str(data.get("url") or ""),
        )


def _data(data: object) -> dict[str, object]:
    return data if isinstance(data, dict) else {}


def _refused(error: str) -> SettingInvalid:
    if error in TOKEN_REFUSED:
        return SettingInvalid(
            f"Slack does not accept SLACK_BOT_TOKEN ({error}). Install the app to the workspace again and copy the Bot "
            f"User OAuth Token ({PAGE}, OAuth & Permissions)."
        )
    return SettingInvalid(f"Slack refused auth.test: {error}.")


def _check_scopes(scopes: frozenset[str], config: SlackConfig) -> None:
    needed = (*BOT_SCOPES, EMAIL_SCOPE) if config.link_by_email else BOT_SCOPES
    missing = [scope for scope in needed if scope not in scopes]
    if missing:
        raise SettingInvalid(
            f"The Slack app lacks the bot scopes {', '.join(missing)}. Add them under OAuth & Permissions ({PAGE}), or "
            "take the manifest that `throughline slack manifest` prints; then install the app again."
        )


def _report_missing_scopes(scopes: frozenset[str]) -> None:
    missing = [scope for scope in LEAVING_SCOPES if scope not in scopes]
    if missing:
        log.warning(
            "slack scopes missing",
            missing=", ".join(missing),
            hint="People who leave a channel keep access to its sessions over REST. Add the scopes and the event "
            "member_left_channel, as in `throughline slack manifest`, and install the app again.",
        )


def _state(token: str, prefix: str) -> str:
    return f"does not begin with {prefix}" if token else "is not set"


# The Slack app's manifest, for https://api.slack.com/apps → Create New App → From a manifest. Its fields:
# https://docs.slack.dev/reference/app-manifest/ .

EVENTS = (
    "app_mention",
    "app_uninstalled",
    "member_left_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "tokens_revoked",
)


def manifest(name: str, url: str) -> str:
    """Return the manifest as JSON, for events over HTTP at `url`, or for Socket Mode if `url` is ''."""
    events_url = f"{url.rstrip('/')}{PATH}" if url else ""
    request = {"request_url": events_url} if url else {}
    command = {
        "command": "/agent",
        "description": "Commands about the thread you last wrote in",
        "usage_hint": "context | summarize [focus] | new | stop | resume SESSION_ID | help",
        "should_escape": False,
    }
    written = {
        "display_information": {"name": name, "description": "Conversations that can run for ever"},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [command | ({"url": events_url} if url else {})],
            "assistant_view": {"assistant_description": "Answers in threads, and remembers"},
        },
        "oauth_config": {"scopes": {"bot": sorted([*BOT_SCOPES, *LEAVING_SCOPES, EMAIL_SCOPE])}},
        "settings": {
            "event_subscriptions": {**request, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **request},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }
    return json.dumps(written, indent=2)


# Identification of the bot: at start, Slack is asked for the bot's user id and workspace. Wrong settings end the start.
# If Slack does not answer, it is asked again in the background.

START_SECONDS = 5.0
"""Seconds that the start waits for each answer of Slack, so that the rest of the service is not delayed."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
AWAY = "Slack does not answer at {url} (SLACK_API_URL). The service tries again."


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


# Monitoring of whether the app is still installed. Slack's events and refusals report that it is not. Slack is then
# asked until the token is accepted again.

ASK_SECONDS = 60.0
UNINSTALLED, REVOKED = "app_uninstalled", "tokens_revoked"
WHAT_TO_DO = f"install the app again ({PAGE}) and set SLACK_BOT_TOKEN to the token it then has; answers wait for a day"


class TokenMonitor:
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
