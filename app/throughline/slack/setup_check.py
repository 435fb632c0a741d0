"""Checks of the Slack setup: tokens, scopes and the bot's identity. Errors are explained in a sentence."""

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from throughline.domain.errors import SettingInvalid
from throughline.slack.config import Identity, SlackConfig
from throughline.slack.slack_errors import TOKEN_REFUSED, SlackUnsure, will_pass, word_of

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
