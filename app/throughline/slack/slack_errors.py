"""What a call of Slack's Web API can end with beside an answer."""

from collections.abc import Mapping

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from throughline.domain.errors import PermanentError, TemporaryError

TOKEN_REFUSED = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
TOKEN_ERRORS = TOKEN_REFUSED | {"missing_scope", "no_permission"}
"""The operator has to do something about the app; until then nothing can be delivered."""

LIMITS = frozenset({"ratelimited", "rate_limited"})
PASSING = frozenset({
    "fatal_error",
    "internal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
    "org_login_required",
})
"""Slack's own troubles, told with status 200 too; what was asked for may have been done all the same.

The last two are of a workspace that is being moved to an organization.
"""

GONE = frozenset({"message_not_found"})
"""Somebody deleted the message, and is not to get it again."""

UNEDITABLE = frozenset({"edit_window_closed", "cant_update_message", "message_not_owned_by_app"})
"""The message stands there and stays as it is."""

SERVER_ERROR = 500
TOO_LONG = "msg_too_long"


def word_of(error: SlackApiError) -> str:
    """Return Slack's own word for why it refused, '' for an answer that is a proxy's and tells nothing of the call."""
    response = error.response
    data = response.data if isinstance(response, AsyncSlackResponse) else None
    return str(data.get("error", "")) if isinstance(data, dict) else ""


def will_pass(error: SlackApiError) -> bool:
    """Whether it may be otherwise soon without anybody doing something about it."""
    word = word_of(error)
    return not word or error.response.status_code >= SERVER_ERROR or word in PASSING or word in LIMITS


def retry_after(headers: Mapping[str, str] | None) -> float:
    """Return the seconds that an answer asks to wait, 0 where it asks for none."""
    found = next((value for name, value in (headers or {}).items() if name.lower() == "retry-after"), "")
    return float(found) if found.isdecimal() else 0.0


class SlackRefused(PermanentError):
    """Slack said no; `error` is its word for it, see the methods' pages."""

    code = "slack_refused"

    def __init__(self, method: str, error: str) -> None:
        """Keep which method and Slack's own word."""
        super().__init__(f"Slack refused {method}: {error}.")
        self.error = error


class SlackUnsure(TemporaryError):
    """The connection broke or timed out, or Slack or a proxy had trouble: the call may have been done or not."""

    code = "slack_unsure"


class SlackLimited(TemporaryError):
    """Slack asks to wait for longer than the caller will."""

    code = "slack_limited"
