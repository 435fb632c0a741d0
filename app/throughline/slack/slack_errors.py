"""Errors of calls to Slack's Web API, and the groups into which Slack's error codes fall."""

from collections.abc import Mapping

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from throughline.domain.errors import PermanentError, TemporaryError

TOKEN_REFUSED = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
TOKEN_ERRORS = TOKEN_REFUSED | {"missing_scope", "no_permission"}
"""Error codes that an operator must resolve in the app's settings. Until then nothing can be delivered."""

LIMITS = frozenset({"ratelimited", "rate_limited"})
PASSING = frozenset({
    "fatal_error",
    "internal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
    "org_login_required",
})
"""Error codes for temporary trouble of Slack, also sent with status 200. The call may have been executed.

The last two are for a workspace that is being moved to an organization.
"""

GONE = frozenset({"message_not_found"})
"""Error codes for a message that somebody deleted. It is not posted again."""

UNEDITABLE = frozenset({"edit_window_closed", "cant_update_message", "message_not_owned_by_app"})
"""Error codes for a message that exists but can no longer be edited."""

SERVER_ERROR = 500
TOO_LONG = "msg_too_long"


def word_of(error: SlackApiError) -> str:
    """Return Slack's error code, '' if the answer comes from a proxy and says nothing about the call."""
    response = error.response
    data = response.data if isinstance(response, AsyncSlackResponse) else None
    return str(data.get("error", "")) if isinstance(data, dict) else ""


def will_pass(error: SlackApiError) -> bool:
    """Return whether the error may disappear soon without anybody's action."""
    word = word_of(error)
    return not word or error.response.status_code >= SERVER_ERROR or word in PASSING or word in LIMITS


def retry_after(headers: Mapping[str, str] | None) -> float:
    """Return the seconds that the `Retry-After` header demands, 0 without the header."""
    found = next((value for name, value in (headers or {}).items() if name.lower() == "retry-after"), "")
    return float(found) if found.isdecimal() else 0.0


class SlackRefused(PermanentError):
    """Error for a call that Slack refused. `error` is Slack's error code, documented on the method's page."""

    code = "slack_refused"

    def __init__(self, method: str, error: str) -> None:
        super().__init__(f"Slack refused {method}: {error}.")
        self.error = error


class SlackUnsure(TemporaryError):
    """Error for a call that may or may not have been executed.

    The connection broke or timed out, or Slack or a proxy had trouble.
    """

    code = "slack_unsure"


class SlackLimited(TemporaryError):
    """Error for a rate limit that lasts longer than the caller waits."""

    code = "slack_limited"
